// What a simulation of requests on servers does next: an arrival, or what is to happen to a server or a transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "sim/serving/replica.hpp"

namespace kvroof {

// When each of several things, which have numbers, happens next; of those at one time the lowest number comes first.
class EventQueue {
 public:
  // In place of what was noted before; nothing: not until it is noted again.
  void note(std::size_t what, std::optional<double> when);

  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] std::pair<double, std::size_t> next() const { return *events_.begin(); }

 private:
  std::vector<std::optional<double>> when_;          // by number
  std::set<std::pair<double, std::size_t>> events_;  // the same by time: the earliest of thousands is asked for often
};

// Requests in their order, which come when they come, or from clients that each send their next request when the one
// before is answered, or so long after that.
class Arrivals {
 public:
  // Fills `served`, which outlives this. Of clients, and of their pauses, as ServingSetup has them.
  Arrivals(const std::vector<Request>& requests, std::uint32_t clients, std::span<const double> pauses,
           std::vector<ServedRequest>& served);

  [[nodiscard]] bool more() const {  // until an answer
    return next_ < served_.size() && (clients_ == 0 || !due_.empty());
  }
  // Whether a request comes before all that is noted, or at the same time.
  [[nodiscard]] bool come_before(const EventQueue& events) const;
  [[nodiscard]] bool is_last() const { return next_ + 1 == served_.size(); }
  // The next request comes now.
  std::size_t take();
  // The clients of so many requests send others, if there are any.
  void answered(std::size_t requests, double now);

 private:
  [[nodiscard]] double next_time() const { return clients_ > 0 ? due_.top() : served_[next_].request.arrival; }

  std::vector<ServedRequest>& served_;
  std::uint32_t clients_;
  std::span<const double> pauses_;
  std::size_t next_ = 0;    // the first request that no server has
  std::size_t begun_ = 0;   // pauses, also those after which no request is left
  // When clients send their next requests; of those that wait for no answer.
  std::priority_queue<double, std::vector<double>, std::greater<>> due_;
};

}  // namespace kvroof
