#include "analysis/perplexity.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "sim/core/error.hpp"

namespace kvroof {

std::vector<TextWindow> text_windows(std::uint64_t tokens, std::uint32_t context, std::uint32_t prompt,
                                     std::uint32_t stride) {
  check(prompt < context && stride >= 1, "a window has tokens after its prompt");
  std::vector<TextWindow> windows;
  std::uint64_t counted = 0;  // up to here by the windows before
  for (std::uint64_t begin = 0; begin + prompt < tokens && counted < tokens; begin += stride) {
    const std::uint64_t end = std::min(begin + context, tokens);
    windows.push_back({begin, begin + prompt, std::max(begin + prompt, counted), end});
    counted = end;
  }
  return windows;
}

void TextScore::add(std::span<const float> logprobs, std::uint64_t text_bytes) {
  tokens += logprobs.size();
  bytes += text_bytes;
  for (const float logprob : logprobs) nats -= static_cast<double>(logprob);
}

double TextScore::perplexity() const { return std::exp(nats_per_token()); }

double TextScore::bits_per_byte() const { return nats / std::numbers::ln2 / static_cast<double>(bytes); }

PairedDifference paired_difference(std::span<const double> values, std::span<const double> base) {
  check(!base.empty() && values.size() == base.size(), "a difference is of the same tokens or prompts");
  const auto n = static_cast<double>(base.size());
  const auto difference = [&](std::size_t i) { return values[i] - base[i]; };
  PairedDifference result;
  for (std::size_t i = 0; i < base.size(); ++i) result.mean += difference(i) / n;
  if (base.size() < 2) return result;
  double squares = 0;
  for (std::size_t i = 0; i < base.size(); ++i) squares += std::pow(difference(i) - result.mean, 2);
  result.standard_error = std::sqrt(squares / (n - 1) / n);
  return result;
}

PairedDifference paired_difference(std::span<const double> values, std::span<const double> base,
                                   std::span<const std::size_t> groups) {
  PairedDifference result = paired_difference(values, base);
  std::map<std::size_t, double> sums;  // of each group, from the mean
  for (std::size_t i = 0; i < base.size(); ++i) sums[groups[i]] += values[i] - base[i] - result.mean;
  const auto count = static_cast<double>(sums.size());
  result.standard_error.reset();
  if (count < 2) return result;
  double squares = 0;
  for (const auto& [group, sum] : sums) squares += sum * sum;
  result.standard_error = std::sqrt(squares * count / (count - 1)) / static_cast<double>(base.size());
  return result;
}

PairedDifference nats_difference(std::span<const float> logprobs, std::span<const float> base) {
  return paired_difference(std::vector<double>(base.begin(), base.end()),
                           std::vector<double>(logprobs.begin(), logprobs.end()));
}

}  // namespace kvroof
