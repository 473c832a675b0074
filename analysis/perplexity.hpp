// Perplexity of a text: how it is cut into windows, and what the log-probabilities of its tokens add up to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvroof {

// Tokens [begin, end) of a text: up to prompt_end they are the prompt, each later one is predicted, and those from
// `counted` on count.
struct TextWindow {
  std::uint64_t begin = 0;
  std::uint64_t prompt_end = 0;
  std::uint64_t counted = 0;
  std::uint64_t end = 0;
};

// Windows of `context` tokens of which the first `prompt` are the prompt, `stride` apart; the last one ends with the
// text and may be shorter. A token counts in the first window that predicts it, so that none counts twice: with a
// stride of at most context − prompt each counts once but the first `prompt`, in later windows the last `stride`. The
// sliding window of the Hugging Face guide to perplexity is the same but for its first window, where the tokens of the
// prompt count as well. With stride = context windows do not overlap (llama.cpp).
// prompt < context, 1 ≤ stride; empty when there are not more than `prompt` tokens.
std::vector<TextWindow> text_windows(std::uint64_t tokens, std::uint32_t context, std::uint32_t prompt,
                                     std::uint32_t stride);

// What the counted tokens of a text cost.
struct TextScore {
  std::uint64_t tokens = 0;
  std::uint64_t bytes = 0;  // of the text of these tokens
  double nats = 0;          // − sum of natural log-probabilities

  void add(std::span<const float> logprobs, std::uint64_t text_bytes);
  [[nodiscard]] double nats_per_token() const { return nats / static_cast<double>(tokens); }
  [[nodiscard]] double perplexity() const;     // exp(nats per token)
  [[nodiscard]] double bits_per_byte() const;  // comparable between tokenizers
};

// The mean of a − b over the same tokens or prompts, as many of each and at least one, and its standard error as if
// they were independent (tokens are not quite: errors within a window go together).
struct PairedDifference {
  double mean = 0;
  std::optional<double> standard_error;  // of one pair nothing is known of it
};

PairedDifference paired_difference(std::span<const double> values, std::span<const double> base);
// Where those of a group, whose number stands beside each, are not independent: the error is that of sums over groups
// (cluster-robust, Liang and Zeger 1986), of which one has none. With groups of one the same as above.
PairedDifference paired_difference(std::span<const double> values, std::span<const double> base,
                                   std::span<const std::size_t> groups);
// Of nats per token: positive when `logprobs` gives the tokens less probability than `base`. As many of each, ≥ 1.
PairedDifference nats_difference(std::span<const float> logprobs, std::span<const float> base);

}  // namespace kvroof
