#include "sim/model/state_layers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Norms, and what is learned of heads and channels.
u64 vector_parameters(const StateLayers& s) {
  switch (s.kind) {
    case StateKind::kMamba1:  // what makes channels forget, what passes by, and biases of steps
      return s.values() * (s.key_dim + 2) + (s.output_norm ? s.step_rank + 2 * s.keys() : 0);
    case StateKind::kMamba2: return exact_state_parameters(s) + (s.output_norm ? s.values() : 0);
    case StateKind::kGatedDelta: return exact_state_parameters(s) + s.value_dim;
    case StateKind::kKimiDelta: return s.keys() + s.heads + s.value_dim;
    case StateKind::kLightning: return s.values();
    default: return 0;
  }
}

}  // namespace

u64 state_elements(const StateLayers& s) { return u64{s.heads} * s.key_dim * s.value_dim; }

u64 convolved_channels(const StateLayers& s, u64 hidden) {
  if (s.convolution == 0) return 0;
  if (s.kind == StateKind::kShortConvolution) return hidden;
  return s.values() + (s.kind == StateKind::kMamba1 ? 0 : 2 * s.keys());
}

StateRows state_rows(const StateLayers& s, u64 hidden) {
  StateRows rows;
  each_state_product(s, hidden, [&](u64 in, u64 out) { rows = {std::max(rows.widest, out), in}; });
  return rows;
}

u64 state_parameters(const StateLayers& s, u64 hidden) {
  u64 total = vector_parameters(s);
  each_state_product(s, hidden, [&](u64 in, u64 out) { total += in * out; });
  const bool has_bias = s.kind == StateKind::kMamba1 || s.kind == StateKind::kMamba2;
  const u64 of_channel = s.convolution + (has_bias ? 1 : 0);
  return total + convolved_channels(s, hidden) * of_channel;
}

u64 exact_state_parameters(const StateLayers& s) {
  switch (s.kind) {
    case StateKind::kMamba2: return 3 * u64{s.heads};
    case StateKind::kGatedDelta: return 2 * u64{s.heads};
    default: return 0;
  }
}

u64 state_bytes(const StateLayers& s, u64 hidden, DType weights) {
  const u64 rows = s.convolution > 0 ? s.convolution - 1 : 0;
  const u64 row_bytes = convolved_channels(s, hidden) * size_of(s.row_type.value_or(weights));
  return state_elements(s) * size_of(s.type) + rows * row_bytes;
}

u64 state_operations(const StateLayers& s, u64 hidden) {
  const bool delta = s.kind == StateKind::kGatedDelta || s.kind == StateKind::kKimiDelta;
  return state_elements(s) * (delta ? 7 : 5) + 2 * convolved_channels(s, hidden) * s.convolution;
}

std::string state_problem(const StateLayers& s) {
  constexpr std::uint32_t kMostStates = 1U << 12, kMost = 1U << 16, kWide = 1U << 20;
  const bool sized = s.heads > 0 || s.key_heads > 0 || s.key_dim > 0 || s.value_dim > 0;
  if (s.kind == StateKind::kNone) {
    return s.layers == 0 && !sized ? "" : "state_kind is missing, but other fields of states are there";
  }
  if (s.layers == 0 || s.layers > kMostStates) {
    return fmt::format("state_layers is {}, expected 1 to {}", s.layers, kMostStates);
  }
  if (s.convolution > 64) return fmt::format("state_convolution is {}, expected at most 64", s.convolution);
  if (s.kind == StateKind::kShortConvolution) {
    if (sized) return "short convolutions have no heads, but sizes of heads are there";
    return s.convolution > 0 ? "" : "state_convolution is missing";
  }
  for (const std::uint32_t size : {s.heads, s.key_heads, s.key_dim, s.value_dim}) {
    if (size == 0 || size > kMost) return fmt::format("a size of a state is {}, expected 1 to {}", size, kMost);
  }
  if (s.step_rank > kMost || (s.kind == StateKind::kMamba1) != (s.step_rank > 0)) {
    return fmt::format("state_step_rank is {}, expected 1 to {} of Mamba-1 alone", s.step_rank, kMost);
  }
  if (s.heads % s.key_heads != 0) {
    return fmt::format("state_heads is {}, not a multiple of state_key_heads {}", s.heads, s.key_heads);
  }
  if (s.keys() > kWide || s.values() > kWide) {
    return fmt::format("heads of states are {} wide, expected at most {}", std::max(s.keys(), s.values()), kWide);
  }
  return {};
}

}  // namespace kvroof
