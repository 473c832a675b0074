#include "kernels/engine/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sim/core/philox.hpp"

namespace kvroof {
namespace {

// Distinguishes these draws from those of the policies, which use the same seed.
constexpr std::uint32_t kSamplerStream = 0x53414d50U;

double uniform(const Sampling& sampling, std::uint32_t sequence, std::uint32_t step) {
  const Philox4 bits = philox4x32_10({{step, sequence, kSamplerStream, 0}}, sampling.seed);
  const std::uint64_t wide = (std::uint64_t{bits.x[0]} << 32 | bits.x[1]) >> 11;
  return (static_cast<double>(wide) + 0.5) * 0x1p-53;
}

// Tokens by logit, then id, as far as they are asked for: of a large vocabulary all but a few would be sorted in vain.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
  }
  std::uint32_t operator[](std::size_t rank) {
    while (rank >= sorted_) sort_more();
    return order_[rank];
  }

 private:
  void sort_more() {
    const auto larger = [this](std::uint32_t a, std::uint32_t b) {
      return logits_[a] > logits_[b] || (logits_[a] == logits_[b] && a < b);
    };
    const std::size_t next = std::min(order_.size(), std::max<std::size_t>(64, 8 * sorted_));
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto last = order_.begin() + static_cast<std::ptrdiff_t>(next);
    std::nth_element(first, last, order_.end(), larger);
    std::sort(first, last, larger);
    sorted_ = next;
  }

  std::span<const float> logits_;
  std::vector<std::uint32_t> order_;
  std::size_t sorted_ = 0;
};

}  // namespace

std::int64_t sample(std::span<const float> logits, const Sampling& sampling, std::uint32_t sequence,
                    std::uint32_t step) {
  const auto best = std::max_element(logits.begin(), logits.end());
  const auto mass = [&](float logit) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(*best)) / sampling.temperature);
  };
  if (sampling.temperature <= 0) return best - logits.begin();
  double total = 0;
  for (const float logit : logits) total += mass(logit);
  if (!std::isfinite(total)) return best - logits.begin();  // what is no distribution cannot be drawn from
  Ranking ranking(logits);
  std::size_t count = logits.size();
  if (sampling.top_k > 0 && sampling.top_k < count) {
    count = sampling.top_k;
    total = 0;
    for (std::size_t rank = 0; rank < count; ++rank) total += mass(logits[ranking[rank]]);
  }
  double kept = total;
  if (sampling.top_p < 1) {
    kept = 0;
    std::size_t reached = 0;
    while (reached < count && (reached == 0 || kept < sampling.top_p * total)) kept += mass(logits[ranking[reached++]]);
    count = reached;
  }
  double target = uniform(sampling, sequence, step) * kept;
  for (std::size_t rank = 0; rank + 1 < count; ++rank) {
    target -= mass(logits[ranking[rank]]);
    if (target < 0) return ranking[rank];
  }
  return ranking[count - 1];
}

float log_probability(std::span<const float> logits, std::int64_t token) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(sum));
}

}  // namespace kvroof
