#include "analysis/perplexity.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/core/error.hpp"

namespace kvroof {

std::vector<TextWindow> text_windows(std::uint64_t tokens, std::uint32_t context, std::uint32_t prompt,
                                     std::uint32_t stride) {
  check(prompt < context && stride >= 1, "a window has tokens after its prompt");
  std::vector<TextWindow> windows;
  for (std::uint64_t begin = 0; begin + prompt < tokens; begin += stride) {
    windows.push_back({begin, begin + prompt, std::min(begin + context, tokens)});
    if (windows.back().end == tokens) break;
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

PairedDifference nats_difference(std::span<const float> logprobs, std::span<const float> base) {
  check(!base.empty() && logprobs.size() == base.size(), "a difference is of the same tokens");
  const auto n = static_cast<double>(base.size());
  const auto difference = [&](std::size_t i) {
    return static_cast<double>(base[i]) - static_cast<double>(logprobs[i]);
  };
  PairedDifference result;
  for (std::size_t i = 0; i < base.size(); ++i) result.mean += difference(i) / n;
  if (base.size() < 2) return result;
  double squares = 0;
  for (std::size_t i = 0; i < base.size(); ++i) squares += std::pow(difference(i) - result.mean, 2);
  result.standard_error = std::sqrt(squares / (n - 1) / n);
  return result;
}

}  // namespace kvroof
