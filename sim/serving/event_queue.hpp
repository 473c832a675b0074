// What a simulation of requests on servers does next: an arrival, or what is to happen to a server or a transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
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
// before is answered.
class Arrivals {
 public:
  // Fills `served`, which outlives this. Of clients as ServingSetup has them.
  Arrivals(const std::vector<Request>& requests, std::uint32_t clients, std::vector<ServedRequest>& served);

  [[nodiscard]] bool more() const { return next_ < sent_; }  // until an answer
  // Whether a request comes before all that is noted, or at the same time.
  [[nodiscard]] bool come_before(const EventQueue& events) const;
  [[nodiscard]] bool is_last() const { return next_ + 1 == served_.size(); }
  [[nodiscard]] std::size_t next() const { return next_; }
  std::size_t take() { return next_++; }
  // The clients of so many requests send others, if there are any.
  void answered(std::size_t requests, double now);

 private:
  std::vector<ServedRequest>& served_;
  std::size_t next_ = 0;  // the first request that no server has
  std::size_t sent_ = 0;  // without clients: all
};

}  // namespace kvroof
