// Layers that hold a state in place of a cache: gated delta nets (arXiv:2412.06464, equation 10, as Qwen3-Next has
// them), Mamba-2 (arXiv:2405.21060, the recurrence of its section 6, with B and C of a group's heads, a gate and a
// norm behind it as Granite 4 has it) and gated short convolutions (LFM2, arXiv:2511.23404, section 2.1).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/engine/model.hpp"
#include "kernels/engine/ops.hpp"

namespace kvroof {

// What one sequence holds of one layer; of the first token both are empty, which stands for zeros.
struct HeldState {
  std::vector<float> rows;      // [convolution − 1, channels] that the convolution ran over last, the oldest first
  std::vector<float> matrices;  // [heads, key_dim, value_dim]

  [[nodiscard]] bool empty() const { return rows.empty() && matrices.empty(); }
  [[nodiscard]] std::uint64_t bytes() const { return (rows.capacity() + matrices.capacity()) * sizeof(float); }
};

// Rows [first, first + count) of a pass are neighbours in a sequence.
struct StatePart {
  HeldState* held = nullptr;
  std::size_t first = 0, count = 0;
};

class StateLayer {
 public:
  // Both must outlive this object.
  StateLayer(const Model& model, Ops& ops) : shape_(model.config.shape), norm_eps_(model.config.options.norm_eps),
                                             ops_(ops) {}

  // out [tokens, hidden] of in [tokens, hidden]; every token changes its sequence's state and reads it. States count as
  // activations: read and written once in each kStateChunk tokens.
  void run(const StateWeights& w, std::span<const float> in, std::span<const StatePart> parts, std::span<float> out);

 private:
  void convolve(const StateWeights& w, const StatePart& part, std::size_t stride);
  void pass_matrices(const StateWeights& w, std::span<const StatePart> parts);
  struct Rates {
    float kept = 0, taken = 0;
  };
  [[nodiscard]] Rates rates_of(const StateWeights& w, std::size_t token, std::size_t head) const;
  void pass_head(const StateWeights& w, const StatePart& piece, std::size_t head);
  void gate_heads(const StateWeights& w, std::size_t tokens);
  void make_gated(std::size_t tokens);

  const ModelShape& shape_;
  float norm_eps_;
  Ops& ops_;
  std::vector<float> projected_;  // [tokens, StateWeights::in rows]
  std::vector<float> rates_;      // [tokens, StateWeights::rates rows]
  std::vector<float> convolved_;  // [tokens, channels]
  std::vector<float> read_;       // [tokens, values]: what heads read of their matrices
  std::vector<float> taps_;       // [convolution, channels]
};

}  // namespace kvroof
