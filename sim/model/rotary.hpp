// Rotary position embedding (Su et al. 2021, arXiv:2104.09864) as data: which dimensions turn, and how fast each pair
// turns.
#pragma once

#include <cstdint>
#include <vector>

namespace kvroof {

// Which elements of the rotated part form pair i of `dims / 2`: (i, i + dims/2) or (2i, 2i + 1).
enum class RotaryStyle : std::uint8_t { kHalfSplit, kAdjacentPairs };

// Pair i at position p turns by p · inverse_frequencies[i], in float; cosine and sine are multiplied by `magnitude`.
struct RotaryRule {
  RotaryStyle style = RotaryStyle::kHalfSplit;
  std::uint32_t dims = 0;                  // rotated elements, even; 0: rows stay as they are
  double theta = 10000.0;                  // base, before scaling
  std::vector<float> inverse_frequencies;  // [dims / 2], scaling applied
  float magnitude = 1;                     // attention factor of YaRN and longrope
  // Phi-3's longrope: sequences whose prompt is longer than this take the second table.
  std::uint32_t long_from = 0;  // tokens; 0: there is no second table
  std::vector<float> long_inverse_frequencies;
  double dynamic_factor = 0;  // of prompts beyond the model's context (scale_dynamic); 0: it ends there

  [[nodiscard]] bool takes_long(std::uint32_t prompt) const { return long_from > 0 && prompt > long_from; }
  bool operator==(const RotaryRule&) const = default;
};

// theta^(-2i/dims) for each pair, rounded to float where the published models round.
std::vector<float> plain_inverse_frequencies(double theta, std::uint32_t dims);

// An unscaled rule over the first `dims` elements.
RotaryRule plain_rotary(RotaryStyle style, std::uint32_t dims, double theta);

// Each of the following scales an unscaled rule for contexts longer than those of the first training, whose length is
// `original` tokens.

// Position interpolation (Chen et al. 2023, arXiv:2306.15595): every frequency is divided by the factor.
void scale_linear(RotaryRule& rule, double factor);

// NTK-aware scaling as transformers has it ("dynamic"): a sequence of `length` tokens, where the model's context is
// `original`, turns by frequencies of the base theta · (factor · length / original − (factor − 1))^(dims / (dims − 2)).
void scale_dynamic(RotaryRule& rule, double length, double original);  // dims > 2

// LLaMA 3.1 (apply_scaling in github.com/meta-llama/llama-models): pairs of a wavelength above original / low_frequency
// are divided by the factor, those below original / high_frequency stay, and between the two there is a linear blend.
struct Llama3Scaling {
  double factor = 8;
  double low_frequency = 1;  // below high_frequency
  double high_frequency = 4;
  double original = 8192;
};
void scale_llama3(RotaryRule& rule, const Llama3Scaling& scaling);

// YaRN (Peng et al. 2023, arXiv:2309.00071): pairs that turn more than beta_fast times within the original context
// stay, those that turn less than beta_slow times are divided by the factor, and between the two there is a linear ramp
// over the index of the pair.
struct YarnScaling {
  double factor = 1;
  double original = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the ends of the ramp are whole indices
  double magnitude = 1;  // see yarn_magnitude
};
void scale_yarn(RotaryRule& rule, const YarnScaling& scaling);  // theta > 1

// 0.1 · mscale · ln(factor) + 1 for a factor above 1, else 1: YaRN's temperature of attention (its section 3.4), with
// DeepSeek-V2's mscale.
double yarn_magnitude(double factor, double mscale = 1);

// LongRoPE (Ding et al. 2024, arXiv:2402.13753) as Phi-3 has it: each pair has factors of its own, one for sequences
// within the original context and one for longer ones.
struct LongropeScaling {
  std::vector<double> short_factors, long_factors;  // [dims / 2]
  std::uint32_t original = 4096;
  double magnitude = 1;
};
void scale_longrope(RotaryRule& rule, const LongropeScaling& scaling);

// sqrt(1 + ln(factor) / ln(original)) for a factor above 1, else 1: longrope's temperature.
double longrope_magnitude(double factor, double original);

}  // namespace kvroof
