#include "kernels/cpu/reference_ops.hpp"

#include <algorithm>
#include <cmath>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

// One row of a weight as floats.
std::span<const float> row_as_floats(const Weight& w, std::size_t row, std::vector<float>& buffer) {
  buffer.resize(w.cols);
  convert_to_float(w.type, w.view().row(row), buffer);
  return buffer;
}

}  // namespace

void ReferenceOps::embed(const Weight& table, std::span<const std::int64_t> ids, std::span<float> out) {
  check(out.size() == ids.size() * table.cols, "embed: out is [ids, cols]");
  for (std::size_t t = 0; t < ids.size(); ++t) {
    convert_to_float(table.type, table.view().row(static_cast<std::size_t>(ids[t])),
                     out.subspan(t * table.cols, table.cols));
  }
  counters_.add(Cause::kWeights, ids.size() * table.cols * size_of(table.type));
  counters_.add(Cause::kActivations, out.size_bytes());
}

void ReferenceOps::rms_norm(std::span<const float> x, const Weight& w, float eps, std::span<float> out) {
  check(x.size() == out.size() && x.size() % w.cols == 0, "rms_norm: rows of w.cols elements");
  const std::span<const float> scale = row_as_floats(w, 0, row_);
  for (std::size_t at = 0; at < x.size(); at += w.cols) {
    double sum = 0;
    for (std::size_t i = 0; i < w.cols; ++i) sum += static_cast<double>(x[at + i]) * x[at + i];
    const double mean = sum / static_cast<double>(w.cols);
    const auto factor = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
    for (std::size_t i = 0; i < w.cols; ++i) out[at + i] = x[at + i] * factor * scale[i];
  }
  counters_.add(Cause::kWeights, w.bytes());
  counters_.add(Cause::kActivations, x.size_bytes() + out.size_bytes());
}

void ReferenceOps::linear(std::span<const float> x, const Weight& w, const Weight* bias, std::span<float> out) {
  const std::size_t tokens = x.size() / w.cols;
  check(x.size() == tokens * w.cols && out.size() == tokens * w.rows, "linear: x is [t, cols], out is [t, rows]");
  // A product with a matrix is the dot products of its rows: the ones that attention makes with keys.
  for (std::size_t t = 0; t < tokens; ++t) {
    compute_logits(x.subspan(t * w.cols, w.cols), w.view(), LogitRule{}, out.subspan(t * w.rows, w.rows));
  }
  counters_.add(Cause::kWeights, w.bytes());
  if (bias != nullptr) {
    const std::span<const float> add = row_as_floats(*bias, 0, row_);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += add[i % w.rows];
    counters_.add(Cause::kWeights, bias->bytes());
  }
  counters_.add(Cause::kActivations, x.size_bytes() + out.size_bytes());
}

void ReferenceOps::rotate(std::span<float> x, std::span<const TokenPos> positions, std::uint32_t heads,
                          std::uint32_t head_dim, std::uint32_t dims, double theta, RotaryStyle style) {
  check(x.size() == positions.size() * heads * head_dim && dims <= head_dim && dims % 2 == 0,
        "rotate: x is [t, heads, head_dim]");
  const std::size_t half = dims / 2;
  const bool split = style == RotaryStyle::kHalfSplit;
  for (std::size_t i = 0; i < half; ++i) {
    // Frequency and angle are rounded to float where the published models round them; a long context notices.
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
    const auto frequency = 1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    const std::size_t first = split ? i : 2 * i;
    const std::size_t second = split ? i + half : 2 * i + 1;
    for (std::size_t t = 0; t < positions.size(); ++t) {
      const float angle = static_cast<float>(positions[t].value) * frequency;
      const auto cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
      const auto sine = static_cast<float>(std::sin(static_cast<double>(angle)));
      for (std::size_t h = 0; h < heads; ++h) {
        float* head = x.data() + (t * heads + h) * head_dim;
        const float a = head[first];
        const float b = head[second];
        head[first] = a * cosine - b * sine;
        head[second] = b * cosine + a * sine;
      }
    }
  }
  counters_.add(Cause::kActivations, 2 * x.size_bytes());
}

void ReferenceOps::walk_rows(const AttendCall& call, std::span<const TokenPos> positions, const AttentionRule& rule) {
  const std::size_t slots = call.keys.count;
  const std::size_t group = call.q.size() / call.keys.width;
  check(positions.size() == slots && call.values.count == slots, "attention: a row of k and v for every slot");
  logits_.resize(group * slots);
  weights_.resize(group * slots);
  for (std::size_t g = 0; g < group; ++g) {
    const std::span<float> logits(logits_.data() + g * slots, slots);
    const std::span<float> weights(weights_.data() + g * slots, slots);
    compute_logits(call.q.subspan(g * call.keys.width, call.keys.width), call.keys, rule.logits, logits);
    if (!rule.alibi.empty()) add_alibi(positions, call.query, rule.alibi[call.first_query_head + g], logits);
    softmax(logits, weights);
    weighted_sum(weights, call.values, call.out.subspan(g * call.values.width, call.values.width));
  }
  counters_.add(Cause::kKvRead, call.keys.bytes() + call.values.bytes());
  counters_.add(Cause::kActivations, call.q.size_bytes() + call.out.size_bytes());
}

void ReferenceOps::attend_row(const AttendCall& call, const AttentionRule& rule) {
  const std::span<const TokenPos> positions = call.policy->positions(call.head);
  walk_rows(call, positions, rule);
  const PolicyTraits& traits = call.policy->traits();
  if (traits.rows == RowNeed::kNone) return;
  AttentionRows rows;
  rows.step = call.policy->step_of(call.query);
  rows.query = call.query;
  rows.positions = positions;
  rows.group = static_cast<std::uint32_t>(call.q.size() / call.keys.width);
  rows.logits = logits_.data();
  rows.weights = traits.needs_weights ? weights_.data() : nullptr;
  call.policy->observe(call.head, rows);
}

void ReferenceOps::attend(std::span<const AttendCall> calls, const AttentionRule& rule) {
  for (const AttendCall& call : calls) attend_row(call, rule);
}

void ReferenceOps::prefill_attend(std::span<const PrefillCall> calls, const AttentionRule& rule) {
  for (const PrefillCall& call : calls) {
    const std::size_t group = call.policy->group();
    AttendCall row{{}, call.keys, call.values, {}, {}, call.policy, call.head, call.first_query_head};
    for (std::size_t i = 0; i < call.keys.count; ++i) {
      row.query = TokenPos(static_cast<std::uint32_t>(i));
      row.q = {call.q + i * call.q_stride, group * call.keys.width};
      row.out = {call.out + i * call.out_stride, group * call.values.width};
      row.keys.count = i + 1;
      row.values.count = i + 1;
      call.policy->admit(call.head, row.query);
      attend_row(row, rule);
    }
  }
}

void ReferenceOps::gated_silu(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  check(gate.size() == up.size() && gate.size() == out.size(), "gated_silu: equal sizes");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
  counters_.add(Cause::kActivations, gate.size_bytes() + up.size_bytes() + out.size_bytes());
}

void ReferenceOps::add_residual(std::span<float> x, std::span<const float> y) {
  check(x.size() == y.size(), "add_residual: equal sizes");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  counters_.add(Cause::kActivations, 2 * x.size_bytes() + y.size_bytes());
}

}  // namespace kvroof
