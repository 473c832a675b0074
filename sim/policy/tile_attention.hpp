// TileAttention: the attention that all tokens of a tile pay to one another, as far as they look back or ahead
// (Chari and Van Durme, 2025).
#pragma once

#include <span>
#include <vector>

#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {

// Rows of n successive tokens.
struct TileRows {
  std::span<const float> queries;  // [n, group, width], after rotary embedding
  std::span<const float> keys;     // [n, width]
  std::span<const float> values;   // [n, v width]
  std::size_t width = 0;
  std::uint32_t group = 1;
};

// The tokens are cut into tiles. Each query of a tile pays softmax(q·k), which is not scaled, to the keys of its tile,
// later ones among them. A token's score is the sum over the queries, as a mean over the group, times ‖v‖, and then a
// third of what it and its two neighbours have. kvpress fills a short last tile up with rows of zeros, which take part.
class TileAttention {
 public:
  explicit TileAttention(const PolicySpec& spec);  // parameters tile and pad
  static TensorNeed needs(const PolicySpec& spec);  // validates them

  void score(const TileRows& rows, std::vector<double>& scores);
  // Of the last score().
  [[nodiscard]] double flops() const { return flops_; }

 private:
  void add_tile(const TileRows& rows, std::size_t first, std::size_t count, std::span<double> sums);

  std::uint32_t tile_;
  bool pads_;
  std::vector<float> weights_;
  std::vector<double> sums_;
  double flops_ = 0;
};

// The queries of the last n tokens of the prompt, [n, group, k width]; all of the prompt's are read.
void read_queries_of_last(HeadTensors& tensors, const PolicyContext& context, std::size_t n, std::vector<float>& out);

inline constexpr ParamInfo kTileParam = {"tile", "tokens | 8", "256",
                                         "neighbours whose queries and keys meet, whichever came first"};
inline constexpr ParamInfo kPadParam = {
    "pad", "yes | no", "yes",
    "fill a short last tile up with rows of zeros, which take part in its attention, as kvpress does"};

}  // namespace kvroof
