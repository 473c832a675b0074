#include "sim/serving/router.hpp"

#include <algorithm>

namespace kvroof {
namespace {

constexpr std::size_t kUnevenRequests = 64;
constexpr double kUnevenRatio = 1.5;
constexpr double kLeastFound = 0.3;  // of a prompt

std::size_t load(const Replica& replica) { return replica.waiting() + replica.running(); }
bool less(const Replica& a, const Replica& b) { return load(a) < load(b); }

}  // namespace

std::size_t chosen_replica(std::span<const Replica> replicas, const Request& request, bool by_prefix) {
  const auto [fewest, most] = std::minmax_element(replicas.begin(), replicas.end(), less);
  const auto idlest = static_cast<std::size_t>(fewest - replicas.begin());
  if (!by_prefix) return idlest;
  const auto little = static_cast<double>(load(*fewest)), much = static_cast<double>(load(*most));
  if (much - little > kUnevenRequests && much > kUnevenRatio * little) return idlest;
  std::size_t best = idlest;
  std::uint32_t tokens = replicas[idlest].found(request);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const std::uint32_t found = replicas[i].found(request);
    if (found > tokens || (found == tokens && less(replicas[i], replicas[best]))) best = i, tokens = found;
  }
  return tokens > kLeastFound * request.prompt ? best : idlest;
}

}  // namespace kvroof
