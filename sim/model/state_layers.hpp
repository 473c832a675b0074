// Layers that hold a state of fixed size in place of a cache: state-space models and linear attention, which hybrid
// models put between layers of attention. A token changes the state and reads it; earlier tokens are not kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/core/dtype.hpp"

namespace kvroof {

enum class StateKind : std::uint8_t {
  kNone,
  kMamba1,            // each channel has a state of its own, arXiv:2312.00752 (Jamba)
  kMamba2,            // arXiv:2405.21060
  kGatedDelta,        // with an output gate, arXiv:2412.06464 (Qwen3-Next)
  kKimiDelta,         // each channel forgets by itself, arXiv:2510.26692
  kLightning,         // with an output gate, arXiv:2501.08313 (MiniMax-01)
  kShortConvolution,  // gated before and after, without a matrix (LFM2, arXiv:2511.23404)
};

// Tokens of a prompt between which a state passes memory.
inline constexpr std::uint64_t kStateChunk = 64;

struct StateLayers {
  StateKind kind = StateKind::kNone;
  std::uint32_t layers = 0;       // beside those of attention
  std::uint32_t heads = 0;        // each holds a matrix of key_dim x value_dim; short convolutions have none
  std::uint32_t key_heads = 0;    // of q and k; Mamba: groups of B and C
  std::uint32_t key_dim = 0;      // Mamba: the size of the state
  std::uint32_t value_dim = 0;
  std::uint32_t convolution = 0;  // tokens that the causal convolution before it sees, its own included; 0: none
  DType type = DType::kBF16;      // of the matrices
  std::optional<DType> row_type{};  // of the rows of the convolution; none: that of the weights
  std::uint32_t step_rank = 0;     // Mamba-1: the narrow row that the steps of its channels are made of
  bool output_norm = true;         // Mamba-2: a norm of the output with its gate; Mamba-1: of B, C and the narrow row
  bool beside_attention = false;   // in layers that also attend, on the same input (Falcon-H1)

  [[nodiscard]] std::uint64_t keys() const { return std::uint64_t{key_heads} * key_dim; }
  [[nodiscard]] std::uint64_t values() const { return std::uint64_t{heads} * value_dim; }
};

// Of one layer of such a model of size `hidden`:
// Elements of the matrices that it holds of one sequence.
std::uint64_t state_elements(const StateLayers& s);
// Channels that its convolution runs over; it holds convolution − 1 rows of them.
std::uint64_t convolved_channels(const StateLayers& s, std::uint64_t hidden);
std::uint64_t state_parameters(const StateLayers& s, std::uint64_t hidden);
// Of these, in 32 bits: what makes heads forget, and what Mamba-2 lets pass by.
std::uint64_t exact_state_parameters(const StateLayers& s);
// Bytes of one sequence.
std::uint64_t state_bytes(const StateLayers& s, std::uint64_t hidden, DType weights);
// A multiplication with its addition counts as two: forgetting, change and reading of the matrices, and the
// convolution; the delta rule reads them once more. Products of weights are not in it.
std::uint64_t state_operations(const StateLayers& s, std::uint64_t hidden);

// Calls product(in, out) for each matrix of weights that a token passes.
template <class F>
void each_state_product(const StateLayers& s, std::uint64_t hidden, F&& product) {
  const std::uint64_t k = s.keys(), v = s.values();
  switch (s.kind) {
    case StateKind::kNone: return;
    case StateKind::kMamba1:
      product(hidden, 2 * v);  // gate and x
      product(v, s.step_rank + 2 * k);  // what steps are made of, B and C
      product(s.step_rank, v);
      return product(v, hidden);
    case StateKind::kMamba2:
      product(hidden, 2 * v + 2 * k + s.heads);  // gate and x, B and C, the step of each head
      return product(v, hidden);
    case StateKind::kGatedDelta:
      product(hidden, 2 * k + 2 * v);  // q, k, v and the output's gate
      product(hidden, 2 * std::uint64_t{s.heads});
      return product(v, hidden);
    case StateKind::kKimiDelta:
      product(hidden, 2 * k + v);
      product(hidden, s.key_dim);  // what channels forget, through a narrow row
      product(s.key_dim, k);
      product(hidden, s.heads);
      product(hidden, s.value_dim);  // the output's gate, likewise
      product(s.value_dim, v);
      return product(v, hidden);
    case StateKind::kLightning:
      product(hidden, 2 * k + v);
      product(hidden, v);
      return product(v, hidden);
    case StateKind::kShortConvolution:
      product(hidden, 3 * hidden);
      return product(hidden, hidden);
  }
}

// Elements of a token: the widest that a product makes, and what goes into the last one.
struct StateRows {
  std::uint64_t widest = 0, out = 0;
};
StateRows state_rows(const StateLayers& s, std::uint64_t hidden);

// Why no layer can have these sizes, or nothing.
std::string state_problem(const StateLayers& s);

}  // namespace kvroof
