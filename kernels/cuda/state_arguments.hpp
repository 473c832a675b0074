// What the kernels of layers that hold a state are given (sim/model/state_layers.hpp). A sequence's states lie in
// memory of its own: of each such layer the rows that its convolution ran over last, and its matrices, all floats.
#pragma once

#include "kernels/cuda/kernels.hpp"

namespace kvroof::cuda {

// Whose states the tokens of a pass change.
struct StatePlaces {
  float* const* sequences = nullptr;  // of each token; of a prompt there is one, which begins here
  bool prompt = false;
  std::uint64_t at = 0;               // floats from there to what a launch changes
};

// out row t = silu(bias + Σ taps · rows up to t), or of a short convolution: second third of row t · Σ taps · (first
// third · last third) of rows up to t.
struct ConvolveArguments {
  StatePlaces states;             // [width − 1, channels], the oldest first
  const float* x = nullptr;       // [tokens, x_row]; the channels lead
  std::uint32_t x_row = 0;
  std::uint32_t tokens = 0;
  std::uint32_t channels = 0;
  std::uint32_t width = 0;        // tokens that it sees
  const std::byte* taps = nullptr;  // [channels, width] of the weights' type
  const std::byte* bias = nullptr;  // [channels], or null; not of a short convolution
  bool is_short = false;
  float* out = nullptr;           // [tokens, channels]
};

// For each head S ← e^−g S; S ← S + k βᵀ(v − Sᵀk); out = Sᵀq (gated delta rule, arXiv:2412.06464, equation 10), or with
// Δ = softplus(step + bias) S ← e^(−Δ e^decay) S; S ← S + Δ k vᵀ; out = Sᵀq + skip v (Mamba-2, arXiv:2405.21060).
constexpr std::uint32_t kMostStateKeys = 256;
struct StateRuleArguments {
  StatePlaces states;                // [heads, key_dim, value_dim]
  const float* x = nullptr;          // [tokens, 2 · key_heads · key_dim + heads · value_dim]: q, k, v
  const float* rates = nullptr;      // [tokens, rates_row]; 2 · heads lead, or the steps of heads
  std::uint32_t rates_row = 0;
  const float* decay = nullptr;      // [heads]
  const float* rate_bias = nullptr;  // [heads]
  const float* skip = nullptr;       // [heads] of Mamba-2; null: the delta rule
  std::uint32_t tokens = 0;
  std::uint32_t heads = 0, key_heads = 0;
  std::uint32_t key_dim = 0, value_dim = 0;  // key_dim ≤ kMostStateKeys
  float* out = nullptr;              // [tokens, heads, value_dim]
};

// x = f(gate) · norm(x) of each head, or f(gate) · x; of groups norm(f(gate) · x), with a scale of each element.
struct GateArguments {
  float* x = nullptr;                // [tokens, heads, dim]
  const float* gate = nullptr;       // [tokens, gate_row], of which heads · dim lead
  std::uint32_t gate_row = 0;
  std::uint32_t tokens = 0;
  std::uint32_t heads = 0, dim = 0;
  ActivationMode f = ActivationMode::kSilu;
  const std::byte* scale = nullptr;  // [dim], of groups [heads, dim], of the weights' type, of an RMS norm; null: none
  float eps = 0;
};

void run_convolve(Stream& stream, Stored weights, const ConvolveArguments& a);
void run_state_rule(Stream& stream, const StateRuleArguments& a);
void run_gate_heads(Stream& stream, Stored weights, const GateArguments& a);
// Groups are wider than heads: many threads share one.
void run_gate_groups(Stream& stream, Stored weights, const GateArguments& a);

}  // namespace kvroof::cuda
