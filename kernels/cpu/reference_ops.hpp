// The reference operators: plain, single-threaded, in float; the back end that all others are compared with.
//
// Dot products and attention are those of sim/attention, so that a replay of what was recorded here decides to the bit
// what the run decided.
#pragma once

#include <vector>

#include "kernels/engine/ops.hpp"

namespace kvroof {

class ReferenceOps : public Ops {
 public:
  void embed(const Weight& table, std::span<const std::int64_t> ids, float scale, std::span<float> out) override;
  void add_rows(const Weight& table, std::span<const std::uint32_t> rows, std::span<float> x) override;
  void norm(std::span<const float> x, const Norm& norm, const NormRule& rule, std::span<float> out) override;
  void linear(std::span<const float> x, const Weight& w, const Weight* bias, std::span<float> out) override;
  void linear_heads(std::span<const float> x, const Weight& w, std::uint32_t heads, std::span<float> out) override;
  void rotate(std::span<float> x, const RowPlaces& places, std::uint32_t heads, std::uint32_t head_dim,
              std::uint32_t first, const RotaryRule& rule) override;
  void attend(std::span<const AttendCall> calls, const AttentionRule& rule) override;
  void prefill_attend(std::span<const PrefillCall> calls, const AttentionRule& rule) override;
  void gated(Activation f, std::span<const float> gate, std::span<const float> up, std::span<float> out) override;
  void activate(Activation f, std::span<float> x) override;
  void for_each(std::size_t count, const std::function<void(std::size_t)>& body) override {
    for (std::size_t i = 0; i < count; ++i) body(i);
  }
  void cap(std::span<float> x, float scale, float softcap) override;
  void add_scaled_rows(std::span<float> x, std::size_t width, std::span<const std::uint32_t> rows,
                       std::span<const float> factors, std::span<const float> y) override;
  void add_residual(std::span<float> x, std::span<const float> y, float factor) override;

 protected:
  // Attention of one query position, [group, k_width] in and [group, v_width] out, over the rows of one storage head;
  // positions[s] is the token of slot s. Row 0 of k and v is slot `oldest`, the next the one after it, and around. The
  // rows are counted as read once: the heads of a group walk them together. Logits and weights, by slot, stay in
  // logits_ and weights_ until the next call.
  void walk_rows(const AttendCall& call, std::span<const TokenPos> positions, const AttentionRule& rule,
                 std::size_t oldest = 0);

 private:
  void attend_row(const AttendCall& call, const AttentionRule& rule, std::size_t oldest = 0);
  void add_values(const AttendCall& call, std::span<float> out);

  std::vector<float> logits_;   // [group, slots]
  std::vector<float> weights_;  // [group, slots]
  std::vector<float> row_;      // one row of a weight matrix or a vector as floats; weights in the order of rows
  std::vector<float> run_out_;  // [v_width]: of one run of slots
};

}  // namespace kvroof
