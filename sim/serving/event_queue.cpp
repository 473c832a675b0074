#include "sim/serving/event_queue.hpp"

#include <algorithm>

namespace kvroof {

void EventQueue::note(std::size_t what, std::optional<double> when) {
  if (what >= when_.size()) when_.resize(what + 1);
  if (when_[what]) events_.erase({*when_[what], what});
  when_[what] = when;
  if (when) events_.insert({*when, what});
}

Arrivals::Arrivals(const std::vector<Request>& requests, std::uint32_t clients, std::span<const double> pauses,
                   std::size_t most, std::vector<ServedRequest>& served)
    : served_(served), clients_(clients), pauses_(pauses), most_(most) {
  served.reserve(requests.size());
  for (const Request& request : requests) served.push_back({.request = request});
  for (std::uint32_t i = 0; i < clients; ++i) due_.push(paused(0));
}

std::optional<double> Arrivals::next_begin() const {
  if (next_ == served_.size()) return std::nullopt;
  if (clients_ == 0) return served_[next_].request.arrival;
  return due_.empty() ? std::nullopt : std::optional(due_.top());
}

bool Arrivals::takes_turn() const {
  if (turns_.empty()) return false;
  const std::optional<double> begins = next_begin();
  return !begins || turns_.top().first < *begins;
}

bool Arrivals::come_before(const EventQueue& events) const {
  if (!more()) return false;
  return events.empty() || (takes_turn() ? turns_.top().first : *next_begin()) <= events.next().first;
}

std::size_t Arrivals::after(std::size_t beginning) const {
  std::size_t i = beginning + 1;
  while (i < served_.size() && served_[i].request.follows) ++i;
  return i;
}

bool Arrivals::is_last() const {
  return taken_ + 1 == most_ || (!takes_turn() && after(next_) == served_.size());
}

std::size_t Arrivals::take() {
  std::size_t request = next_;
  if (takes_turn()) {
    request = turns_.top().second;
    served_[request].request.arrival = turns_.top().first;
    turns_.pop();
  } else {
    if (clients_ > 0) {
      served_[request].request.arrival = due_.top();
      due_.pop();
    }
    next_ = after(next_);
  }
  served_[request].came = taken_++;
  return request;
}

double Arrivals::paused(double now) { return pauses_.empty() ? now : now + pauses_[begun_++ % pauses_.size()]; }

void Arrivals::answered(std::span<const std::size_t> requests, double now) {
  for (const std::size_t i : requests) {
    if (i + 1 < served_.size() && served_[i + 1].request.follows) {
      turns_.emplace(paused(now), i + 1);
    } else if (clients_ > 0) {
      due_.push(paused(now));
    }
  }
}

void Arrivals::end() {
  std::ranges::sort(served_, {}, &ServedRequest::came);
  served_.resize(taken_);
}

}  // namespace kvroof
