// Ops: the operators of a CPU back end. The forward pass is written once on top; a back end implements these.
//
// Activations are float, row-major, one row a token. Every operator adds to counters() the bytes of the spans handed to
// it, by cause, where it takes them: weights, k and v rows in their stored type, activations read and written as float.
// The table in sim/traffic/traffic.hpp says what a correct forward pass adds up to; nothing of sim/traffic is used
// here.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kernels/engine/model.hpp"
#include "sim/attention/attention.hpp"
#include "sim/core/byte_counters.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof {

// Bytes of `rows` rows of k and of v; a latent row holds its v inside k and counts once.
inline std::uint64_t bytes_of_rows(std::uint64_t rows, const RowsView& keys, const RowsView& values) {
  const bool shared = keys.data == values.data;
  return rows * (keys.width + (shared ? 0 : values.width)) * size_of(keys.type);
}

// What attention needs beside q, k and v; the same for all calls of a layer.
struct AttentionRule {
  LogitRule logits;
  std::span<const float> alibi{};  // a slope for each query head of the model, or empty
  std::span<const float> sinks{};  // a sink for each of them, or empty
  float alibi_rounded_scale = 0;   // see AlibiBias

  [[nodiscard]] AlibiBias alibi_of(std::size_t query_head) const {
    return alibi.empty() ? AlibiBias{} : AlibiBias{alibi[query_head], alibi_rounded_scale};
  }
  [[nodiscard]] AttentionSink sink(std::size_t query_head) const {
    return sinks.empty() ? std::nullopt : AttentionSink(sinks[query_head]);
  }
};

// Of each layer that attends; they look into the model, which must outlive them.
std::vector<AttentionRule> attention_rules(const Model& model);

// Slots [first, first + count) of a cache.
struct SlotRun {
  std::uint32_t first = 0, count = 0;
};

// What a policy that selects lets the query heads of a group read in one row.
struct SelectedRows {
  std::vector<SlotRun> runs;         // slots that any of them reads, ascending
  std::vector<TokenPos> positions;   // [rows]: of their tokens, in that order
  std::vector<std::uint8_t> hidden;  // [group, rows]: 1 where that query head does not read the row
};

// One query position of one storage head of one sequence, over the slots of its cache.
struct AttendCall {
  std::span<const float> q;  // [group, k_width], already rounded to the cache's type
  RowsView keys;             // [slots, k_width]; slot s holds policy->positions(head)[s]
  RowsView values;           // [slots, v_width]; of a latent cache, inside the rows of k
  std::span<float> out;      // [group, v_width]
  TokenPos query{};
  LayerPolicy* policy = nullptr;
  HeadId head{};
  std::uint32_t first_query_head = 0;      // of the group, in the model's numbering
  std::uint64_t stored_bytes = 0;          // of the rows read as the cache keeps them; 0: as they are here
  const SelectedRows* selected = nullptr;  // null: every slot is read

  // Rows that the group reads, and their tokens.
  [[nodiscard]] std::size_t rows() const { return selected != nullptr ? selected->positions.size() : keys.count; }
  [[nodiscard]] std::span<const TokenPos> positions() const {
    return selected != nullptr ? std::span<const TokenPos>(selected->positions) : policy->positions(head);
  }
};

inline std::uint64_t bytes_read(const AttendCall& call) {
  return call.stored_bytes > 0 ? call.stored_bytes : bytes_of_rows(call.rows(), call.keys, call.values);
}

// Calls body(run, at) for each run of slots that the call reads; the run's rows are the call's from number `at` on.
template <class Body>
void for_each_run(const AttendCall& call, const Body& body) {
  if (call.selected == nullptr) return body(SlotRun{0, static_cast<std::uint32_t>(call.keys.count)}, std::size_t{0});
  std::size_t at = 0;
  for (const SlotRun& run : call.selected->runs) {
    body(run, at);
    at += run.count;
  }
}

// Logits of rows that query head g does not read become −∞, so that their weights are 0.
inline void hide_rows(const AttendCall& call, std::size_t g, std::span<float> logits) {
  if (call.selected == nullptr) return;
  const std::uint8_t* hidden = call.selected->hidden.data() + g * logits.size();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (hidden[i] != 0) logits[i] = -std::numeric_limits<float>::infinity();
  }
}

// All prompt rows of one storage head of one sequence; row i attends to tokens 0 … i, or to those of them that the
// policy's window shows. Used when the policy does not stream the prompt: nothing is evicted between the rows. The
// callee admits each token to the policy, in order, before its row. The slots that the policy sees then go around:
// prompt_rows() says which.
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
  std::uint64_t stored_row_bytes = 0;  // of a row of k and v, as AttendCall::stored_bytes
};

// Of `rows` of the call's rows.
inline std::uint64_t bytes_read(const PrefillCall& call, std::uint64_t rows) {
  return call.stored_row_bytes > 0 ? rows * call.stored_row_bytes : bytes_of_rows(rows, call.keys, call.values);
}

// The rows of a prompt that one query attends to, once its token is admitted: tokens [first, first + count), of which
// the first lies in the policy's slot `oldest`, the next in the one after it, and around.
struct PromptRows {
  std::size_t first, count, oldest;
};
inline PromptRows prompt_rows(const LayerPolicy& policy, HeadId head, TokenPos query) {
  const std::size_t tokens = std::size_t{query.value} + 1;
  const std::size_t count = policy.positions(head).size();
  return {tokens - count, count, tokens % count};
}

// Where the rows of a pass stand in their sequences.
struct RowPlaces {
  std::span<const TokenPos> positions;
  std::span<const std::uint8_t> use_long;  // != 0: takes a rotary rule's second table; empty: none does
};

struct NormRule {
  NormKind kind = NormKind::kRms;
  float eps = 1e-5F;
  float offset = 0;  // added to the scale
};

class Ops {
 public:
  virtual ~Ops() = default;

  // out row t = scale · table row ids[t].
  virtual void embed(const Weight& table, std::span<const std::int64_t> ids, float scale, std::span<float> out) = 0;
  // x row t += table row rows[t]: learned positions; done where the embedding is written, so only the table counts.
  virtual void add_rows(const Weight& table, std::span<const std::uint32_t> rows, std::span<float> x) = 0;
  // RMS norm: x / sqrt(mean(x²) + eps) · (scale + offset); layer norm: (x − mean) / sqrt(var + eps) · (scale + offset)
  // + bias.
  // Rows of scale.cols elements; row r takes row r mod scale.rows of the scale. out may be x.
  virtual void norm(std::span<const float> x, const Norm& norm, const NormRule& rule, std::span<float> out) = 0;
  // out [t, w.rows] = x [t, w.cols] · wᵀ (+ bias).
  virtual void linear(std::span<const float> x, const Weight& w, const Weight* bias, std::span<float> out) = 0;
  // The same for each head with rows of its own: x [t, heads, w.cols], w [heads · r, w.cols], out [t, heads, r].
  virtual void linear_heads(std::span<const float> x, const Weight& w, std::uint32_t heads, std::span<float> out) = 0;
  // Rotates elements [first, first + rule.dims) of every head of x [t, heads, head_dim] by the row's position.
  virtual void rotate(std::span<float> x, const RowPlaces& places, std::uint32_t heads, std::uint32_t head_dim,
                      std::uint32_t first, const RotaryRule& rule) = 0;
  // Softmax attention of each call; shows the rows to the call's policy when it wants them. Calls are independent.
  virtual void attend(std::span<const AttendCall> calls, const AttentionRule& rule) = 0;
  virtual void prefill_attend(std::span<const PrefillCall> calls, const AttentionRule& rule) = 0;
  // out = f(gate) · up, or what clamped_swiglu.hpp says; out may be gate.
  virtual void gated(Activation f, std::span<const float> gate, std::span<const float> up, std::span<float> out) = 0;
  // x = f(x).
  virtual void activate(Activation f, std::span<float> x) = 0;
  // Calls body(i) once for each i < count, perhaps at once.
  virtual void for_each(std::size_t count, const std::function<void(std::size_t)>& body) = 0;
  // x = scale · x, then softcap · tanh(x / softcap) where softcap > 0: done to logits where their product has just
  // written them, so that nothing counts.
  virtual void cap(std::span<float> x, float scale, float softcap) = 0;
  // x += factor · y: the residual connection.
  virtual void add_residual(std::span<float> x, std::span<const float> y, float factor) = 0;
  // x row rows[i] += factors[i] · y row i; rows of `width` elements, no two the same: outputs of an expert join the
  // residual.
  virtual void add_scaled_rows(std::span<float> x, std::size_t width, std::span<const std::uint32_t> rows,
                               std::span<const float> factors, std::span<const float> y) = 0;

  // Query rows that share one pass over the keys in prefill_attend: 1 in the reference.
  [[nodiscard]] virtual std::uint32_t prefill_block() const { return 1; }

  [[nodiscard]] ByteCounters& counters() { return counters_; }

 protected:
  ByteCounters counters_;
};

}  // namespace kvroof
