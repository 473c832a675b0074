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
// before is answered, or so long after that. Turns of a conversation follow each other likewise; a client begins the
// next conversation when its own is over.
class Arrivals {
 public:
  // Fills `served`, which outlives this. Of clients, of their pauses and of the most requests as ServingSetup has them.
  Arrivals(const std::vector<Request>& requests, std::uint32_t clients, std::span<const double> pauses,
           std::size_t most, std::vector<ServedRequest>& served);

  [[nodiscard]] bool more() const { return taken_ < most_ && (next_begin() || !turns_.empty()); }  // until an answer
  // Whether a request comes before all that is noted, or at the same time.
  [[nodiscard]] bool come_before(const EventQueue& events) const;
  // Whether the next request is the last of all, or of those that follow nothing.
  [[nodiscard]] bool is_last() const;
  // The next request comes now.
  std::size_t take();
  // These requests are answered: those that follow them come, and clients send others, if there are any.
  void answered(std::span<const std::size_t> requests, double now);
  // Nothing more comes: what was served is from now on in the order in which it came, and what did not come is gone.
  void end();

 private:
  // When something that follows nothing comes next; of clients, of whom one waits for no answer.
  [[nodiscard]] std::optional<double> next_begin() const;
  [[nodiscard]] bool takes_turn() const;  // and nothing of that kind is before it
  [[nodiscard]] std::size_t after(std::size_t beginning) const;  // the next of that kind
  [[nodiscard]] double paused(double now);

  template <class T>
  using Earliest = std::priority_queue<T, std::vector<T>, std::greater<>>;

  std::vector<ServedRequest>& served_;
  std::uint32_t clients_;
  std::span<const double> pauses_;
  std::size_t most_;
  std::size_t next_ = 0;    // the first request that follows nothing and that no server has
  std::uint32_t taken_ = 0;
  std::size_t begun_ = 0;   // pauses, also those after which no request is left
  Earliest<double> due_;    // when clients begin something
  Earliest<std::pair<double, std::size_t>> turns_;  // those that follow what is answered, and when they come
};

}  // namespace kvroof
