#include "sim/serving/event_queue.hpp"

#include <algorithm>
#include <limits>

namespace kvroof {

void EventQueue::note(std::size_t what, std::optional<double> when) {
  if (what >= when_.size()) when_.resize(what + 1);
  if (when_[what]) events_.erase({*when_[what], what});
  when_[what] = when;
  if (when) events_.insert({*when, what});
}

Arrivals::Arrivals(const std::vector<Request>& requests, std::uint32_t clients, std::vector<ServedRequest>& served)
    : served_(served), sent_(clients > 0 ? 0 : requests.size()) {
  served.reserve(requests.size());
  for (const Request& request : requests) {
    served.push_back({.request = request});
    if (clients > 0) served.back().request.arrival = std::numeric_limits<double>::infinity();
  }
  answered(clients, 0);
}

bool Arrivals::come_before(const EventQueue& events) const {
  return more() && (events.empty() || served_[next_].request.arrival <= events.next().first);
}

void Arrivals::answered(std::size_t requests, double now) {
  const std::size_t until = std::min(served_.size(), sent_ + requests);
  while (sent_ < until) served_[sent_++].request.arrival = now;
}

}  // namespace kvroof
