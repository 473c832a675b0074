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

}  // namespace

std::int64_t sample(std::span<const float> logits, const Sampling& sampling, std::uint32_t sequence,
                    std::uint32_t step) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature <= 0) return best - logits.begin();
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto larger = [&](std::uint32_t a, std::uint32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  if (sampling.top_k > 0 && sampling.top_k < order.size()) {
    std::partial_sort(order.begin(), order.begin() + sampling.top_k, order.end(), larger);
    order.resize(sampling.top_k);
  } else {
    std::sort(order.begin(), order.end(), larger);
  }
  std::vector<double> mass(order.size());
  double total = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    mass[i] = std::exp((static_cast<double>(logits[order[i]]) - *best) / sampling.temperature);
    total += mass[i];
  }
  double kept = 0;
  std::size_t count = 0;
  while (count < order.size() && (count == 0 || kept < sampling.top_p * total)) kept += mass[count++];
  double target = uniform(sampling, sequence, step) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    target -= mass[i];
    if (target < 0) return order[i];
  }
  return order[count - 1];
}

float log_probability(std::span<const float> logits, std::int64_t token) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(sum));
}

}  // namespace kvroof
