#include "sim/serving/event_queue.hpp"


namespace kvroof {

void EventQueue::note(std::size_t what, std::optional<double> when) {
  if (what >= when_.size()) when_.resize(what + 1);
  if (when_[what]) events_.erase({*when_[what], what});
  when_[what] = when;
  if (when) events_.insert({*when, what});
}

Arrivals::Arrivals(const std::vector<Request>& requests, std::uint32_t clients, std::span<const double> pauses,
                   std::vector<ServedRequest>& served)
    : served_(served), clients_(clients), pauses_(pauses) {
  served.reserve(requests.size());
  for (const Request& request : requests) served.push_back({.request = request});
  answered(clients, 0);
}

bool Arrivals::come_before(const EventQueue& events) const {
  return more() && (events.empty() || next_time() <= events.next().first);
}

std::size_t Arrivals::take() {
  if (clients_ > 0) {
    served_[next_].request.arrival = due_.top();
    due_.pop();
  }
  return next_++;
}

void Arrivals::answered(std::size_t requests, double now) {
  if (clients_ == 0) return;
  for (; requests > 0; --requests, ++begun_) {
    due_.push(pauses_.empty() ? now : now + pauses_[begun_ % pauses_.size()]);
  }
}

}  // namespace kvroof
