// Ops: the operators of a CPU back end. The forward pass is written once on top; a back end implements these.
//
// Activations are float, row-major, one row a token. Every operator adds to counters() the bytes of the spans handed to
// it, by cause, where it takes them: weights, k and v rows in their stored type, activations read and written as float.
// The table in sim/traffic/traffic.hpp says what a correct forward pass adds up to; nothing of sim/traffic is used
// here.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/engine/weight.hpp"
#include "sim/attention/attention.hpp"
#include "sim/core/byte_counters.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof {

// What attention needs beside q, k and v; the same for all calls of a layer.
struct AttentionRule {
  LogitRule logits;
  std::span<const float> alibi;  // a slope for each query head of the model, or empty
};

// One query position of one storage head of one sequence, over the slots of its cache.
struct AttendCall {
  std::span<const float> q;  // [group, k_width], already rounded to the cache's type
  RowsView keys;             // [slots, k_width]; slot s holds policy->positions(head)[s]
  RowsView values;           // [slots, v_width]
  std::span<float> out;      // [group, v_width]
  TokenPos query{};
  LayerPolicy* policy = nullptr;
  HeadId head{};
  std::uint32_t first_query_head = 0;  // of the group, in the model's numbering
};

// All prompt rows of one storage head of one sequence; row i attends to tokens 0 … i. Used when the policy does not
// stream the prompt: nothing is evicted between the rows. The callee admits each token to the policy, in order, before
// its row.
struct PrefillCall {
  const float* q = nullptr;       // row i at q + i · q_stride: [group, k_width]
  std::size_t q_stride = 0;
  RowsView keys;                  // [n, k_width]
  RowsView values;                // [n, v_width]
  float* out = nullptr;           // row i at out + i · out_stride: [group, v_width]
  std::size_t out_stride = 0;
  LayerPolicy* policy = nullptr;
  HeadId head{};
  std::uint32_t first_query_head = 0;
};

enum class RotaryStyle : std::uint8_t { kHalfSplit, kAdjacentPairs };

class Ops {
 public:
  virtual ~Ops() = default;

  // out row t = table row ids[t].
  virtual void embed(const Weight& table, std::span<const std::int64_t> ids, std::span<float> out) = 0;
  // out row = x row / sqrt(mean(x²) + eps) · w; rows of w.cols elements.
  virtual void rms_norm(std::span<const float> x, const Weight& w, float eps, std::span<float> out) = 0;
  // out [t, w.rows] = x [t, w.cols] · wᵀ (+ bias).
  virtual void linear(std::span<const float> x, const Weight& w, const Weight* bias, std::span<float> out) = 0;
  // Rotates the first `dims` of each head_dim elements of every row of x [t, heads, head_dim] by its position, in
  // place.
  virtual void rotate(std::span<float> x, std::span<const TokenPos> positions, std::uint32_t heads,
                      std::uint32_t head_dim, std::uint32_t dims, double theta, RotaryStyle style) = 0;
  // Softmax attention of each call; shows the rows to the call's policy when it wants them. Calls are independent.
  virtual void attend(std::span<const AttendCall> calls, const AttentionRule& rule) = 0;
  virtual void prefill_attend(std::span<const PrefillCall> calls, const AttentionRule& rule) = 0;
  // out = silu(gate) · up.
  virtual void gated_silu(std::span<const float> gate, std::span<const float> up, std::span<float> out) = 0;
  // x += y: the residual connection.
  virtual void add_residual(std::span<float> x, std::span<const float> y) = 0;

  // Query rows that share one pass over the keys in prefill_attend: 1 in the reference.
  [[nodiscard]] virtual std::uint32_t prefill_block() const { return 1; }

  [[nodiscard]] ByteCounters& counters() { return counters_; }

 protected:
  ByteCounters counters_;
};

}  // namespace kvroof
