#include "sim/policy/eviction_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();

// A flow from times to tokens, each time as many as it evicts and each token at most once. Times are added one by one;
// the flow stays the cheapest for those there are, which its prices prove: the reduced cost of a token that a time does
// not evict is at least 0, of one that it does at most 0.
class Plan {
 public:
  Plan(const FutureAttention& future, std::uint32_t query_head, std::uint32_t prompt, std::size_t times)
      : future_(future), head_(query_head), prompt_(prompt), tokens_(prompt + future.steps()),
        time_of_(tokens_, kNeverEvicted), token_price_(tokens_), time_price_(times), token_distance_(tokens_),
        time_distance_(times), taken_by_(tokens_), given_for_(times) {}

  // The first time, which may evict many: those that lose least.
  void start(std::uint32_t count) {
    if (count == 0) return;
    std::vector<std::uint32_t> order(prompt_);
    std::iota(order.begin(), order.end(), 0U);
    const std::span<const float> loss = future_.after(0, head_);
    const auto last = order.begin() + count - 1;
    std::nth_element(order.begin(), last, order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return loss[a] != loss[b] ? loss[a] < loss[b] : a < b;
    });
    time_price_[0] = static_cast<double>(loss[*last]);
    for (auto token = order.begin(); token <= last; ++token) {
      time_of_[*token] = 0;
      token_price_[*token] = static_cast<double>(loss[*token]) - time_price_[0];
    }
  }

  // One token more goes at `time`: the cheapest chain in which it takes the place of a token that goes at another time
  // instead, until one goes that had stayed.
  void add(std::uint32_t time) {
    time_price_[time] = cheapest(time);
    const std::uint32_t freed = search(time);
    const double length = token_distance_[freed];
    for (std::uint32_t t = 0; t <= time; ++t) {
      if (time_distance_[t] < length) time_price_[t] += length - time_distance_[t];
    }
    for (std::uint32_t token = 0; token < born_by(time); ++token) {
      if (token_distance_[token] < length) token_price_[token] -= length - token_distance_[token];
    }
    for (std::uint32_t token = freed;;) {
      const std::uint32_t t = taken_by_[token];
      time_of_[token] = t;
      if (t == time) return;
      token = given_for_[t];
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> take() { return std::move(time_of_); }

 private:
  using Entry = std::pair<double, std::uint32_t>;  // distance; a token, or tokens_ + a time

  [[nodiscard]] std::uint32_t born_by(std::uint32_t time) const { return prompt_ + time; }

  double cheapest(std::uint32_t time) const {
    const std::span<const float> loss = future_.after(time, head_);
    double least = kFar;
    for (std::uint32_t token = 0; token < born_by(time); ++token) {
      least = std::min(least, static_cast<double>(loss[token]) - token_price_[token]);
    }
    return least;
  }

  // Dijkstra's search from `time`; returns the nearest token that had stayed.
  std::uint32_t search(std::uint32_t time) {
    std::ranges::fill(token_distance_, kFar);
    std::ranges::fill(time_distance_, kFar);
    queue_ = {};
    nearest_stayed_ = kFar;
    time_distance_[time] = 0;
    queue_.emplace(0.0, tokens_ + time);
    for (;;) {
      const auto [distance, node] = queue_.top();
      queue_.pop();
      if (node >= tokens_) {
        if (distance == time_distance_[node - tokens_]) relax_tokens(node - tokens_);
        continue;
      }
      if (distance != token_distance_[node]) continue;
      if (time_of_[node] == kNeverEvicted) return node;
      relax_time(node);
    }
  }

  void relax_tokens(std::uint32_t time) {
    const std::span<const float> loss = future_.after(time, head_);
    const double base = time_distance_[time] - time_price_[time];
    for (std::uint32_t token = 0; token < born_by(time); ++token) {
      const double distance =
          std::max(base + static_cast<double>(loss[token]) - token_price_[token], time_distance_[time]);
      if (distance >= token_distance_[token] || distance >= nearest_stayed_ || time_of_[token] == time) continue;
      token_distance_[token] = distance;
      taken_by_[token] = time;
      if (time_of_[token] == kNeverEvicted) nearest_stayed_ = distance;
      queue_.emplace(distance, token);
    }
  }

  void relax_time(std::uint32_t token) {
    const std::uint32_t time = time_of_[token];
    const double loss = static_cast<double>(future_.after(time, head_)[token]);
    const double gained = std::max(0.0, time_price_[time] + token_price_[token] - loss);
    const double distance = token_distance_[token] + gained;
    if (distance >= time_distance_[time]) return;
    time_distance_[time] = distance;
    given_for_[time] = token;
    queue_.emplace(distance, tokens_ + time);
  }

  const FutureAttention& future_;
  std::uint32_t head_, prompt_, tokens_;
  std::vector<std::uint32_t> time_of_;  // by token
  std::vector<double> token_price_, time_price_;
  // Of one search.
  std::vector<double> token_distance_, time_distance_;
  std::vector<std::uint32_t> taken_by_, given_for_;  // the step before, of a token and of a time
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  double nearest_stayed_ = kFar;
};

}  // namespace

std::vector<std::uint32_t> best_evictions(const FutureAttention& future, std::uint32_t query_head,
                                          std::uint32_t prompt, std::span<const std::uint32_t> evictions) {
  Plan plan(future, query_head, prompt, evictions.size());
  if (!evictions.empty()) plan.start(evictions[0]);
  for (std::uint32_t time = 1; time < evictions.size(); ++time) {
    check(evictions[time] <= 1, "a decoded token drives out one at most");
    if (evictions[time] == 1) plan.add(time);
  }
  return plan.take();
}

}  // namespace kvroof
