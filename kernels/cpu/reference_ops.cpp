#include "kernels/cpu/reference_ops.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/engine/selected_rows.hpp"
#include "sim/core/error.hpp"
#include "sim/model/clamped_swiglu.hpp"
#include "sim/policy/slot_positions.hpp"

namespace kvroof {
namespace {

// One row of a weight as floats.
std::span<const float> row_as_floats(const Weight& w, std::size_t row, std::vector<float>& buffer) {
  buffer.resize(w.cols);
  convert_to_float(w.type, w.view().row(row), buffer);
  return buffer;
}

float activation_of(Activation f, float x) {
  switch (f) {
    case Activation::kSilu: return x / (1.0F + std::exp(-x));
    case Activation::kGelu: return 0.5F * x * (1.0F + std::erf(x * 0.70710678F));
    case Activation::kGeluTanh: return 0.5F * x * (1.0F + std::tanh(0.79788456F * (x + 0.044715F * x * x * x)));
    case Activation::kSigmoid: return 1.0F / (1.0F + std::exp(-x));
    case Activation::kRelu: return std::max(x, 0.0F);
    case Activation::kRelu2: return std::max(x, 0.0F) * x;
    case Activation::kClampedSwiglu: break;  // gated_of
  }
  check(false, "an activation of one number");
  return 0;
}

float gated_of(Activation f, float gate, float up) {
  if (f != Activation::kClampedSwiglu) return activation_of(f, gate) * up;
  const float g = std::min(gate, kSwigluLimit);
  return (std::clamp(up, -kSwigluLimit, kSwigluLimit) + 1.0F) * g / (1.0F + std::exp(-kSwigluSlope * g));
}

}  // namespace

void ReferenceOps::embed(const Weight& table, std::span<const std::int64_t> ids, float scale, std::span<float> out) {
  check(out.size() == ids.size() * table.cols, "embed: out is [ids, cols]");
  for (std::size_t t = 0; t < ids.size(); ++t) {
    check(ids[t] >= 0 && static_cast<std::size_t>(ids[t]) < table.rows, "embed: ids lie in the table");
    const std::span<float> row = out.subspan(t * table.cols, table.cols);
    convert_to_float(table.type, table.view().row(static_cast<std::size_t>(ids[t])), row);
    for (float& x : row) x *= scale;
  }
  counters_.add(Cause::kWeights, ids.size() * table.cols * size_of(table.type));
  counters_.add(Cause::kActivations, out.size_bytes());
}

void ReferenceOps::add_rows(const Weight& table, std::span<const std::uint32_t> rows, std::span<float> x) {
  check(x.size() == rows.size() * table.cols, "add_rows: x is [rows, cols]");
  for (std::size_t t = 0; t < rows.size(); ++t) {
    check(rows[t] < table.rows, "add_rows: rows lie in the table");
    const std::span<const float> row = row_as_floats(table, rows[t], row_);
    for (std::size_t i = 0; i < table.cols; ++i) x[t * table.cols + i] += row[i];
  }
  counters_.add(Cause::kWeights, rows.size() * table.cols * size_of(table.type));
}

void ReferenceOps::norm(std::span<const float> x, const Norm& norm, const NormRule& rule, std::span<float> out) {
  const std::size_t width = norm.scale.cols;
  check(x.size() == out.size() && x.size() % width == 0, "norm: rows of the norm's width");
  for (std::size_t at = 0; at < x.size(); at += width) {
    const std::size_t weight_row = at / width % norm.scale.rows;
    const std::span<const float> scale = row_as_floats(norm.scale, weight_row, row_);
    double mean = 0;
    if (rule.kind == NormKind::kLayer) {
      for (std::size_t i = 0; i < width; ++i) mean += static_cast<double>(x[at + i]);
      mean /= static_cast<double>(width);
    }
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double centred = static_cast<double>(x[at + i]) - mean;
      sum += centred * centred;
    }
    const double variance = sum / static_cast<double>(width);
    const auto factor = static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(rule.eps)));
    const auto centre = static_cast<float>(mean);
    for (std::size_t i = 0; i < width; ++i) out[at + i] = (x[at + i] - centre) * factor * (scale[i] + rule.offset);
    if (norm.bias.empty()) continue;
    const std::span<const float> shift = row_as_floats(norm.bias, weight_row, row_);
    for (std::size_t i = 0; i < width; ++i) out[at + i] += shift[i];
  }
  counters_.add(Cause::kWeights, norm.scale.bytes() + norm.bias.bytes());
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

void ReferenceOps::linear_heads(std::span<const float> x, const Weight& w, std::uint32_t heads, std::span<float> out) {
  const std::size_t rows = w.rows / heads;
  const std::size_t count = x.size() / w.cols;
  check(x.size() == count * w.cols && count % heads == 0 && out.size() == count * rows && w.rows == rows * heads,
        "linear_heads: x is [t, heads, cols], out is [t, heads, rows]");
  for (std::size_t i = 0; i < count; ++i) {
    RowsView head = w.view();
    head.data = head.row(i % heads * rows);
    head.count = rows;
    compute_logits(x.subspan(i * w.cols, w.cols), head, LogitRule{}, out.subspan(i * rows, rows));
  }
  counters_.add(Cause::kWeights, w.bytes());
  counters_.add(Cause::kActivations, x.size_bytes() + out.size_bytes());
}

void ReferenceOps::rotate(std::span<float> x, const RowPlaces& places, std::uint32_t heads, std::uint32_t head_dim,
                          std::uint32_t first, const RotaryRule& rule) {
  const std::size_t rows = places.positions.size();
  check(x.size() == rows * heads * head_dim && first + rule.dims <= head_dim && rule.dims % 2 == 0,
        "rotate: x is [t, heads, head_dim]");
  const std::size_t half = rule.dims / 2;
  const bool split = rule.style == RotaryStyle::kHalfSplit;
  for (std::size_t t = 0; t < rows; ++t) {
    const bool use_long = !places.use_long.empty() && places.use_long[t] != 0;
    const std::vector<float>& frequencies = use_long ? rule.long_inverse_frequencies : rule.inverse_frequencies;
    for (std::size_t i = 0; i < half; ++i) {
      // The angle is rounded to float where the published models round it; a long context notices.
      const float angle = static_cast<float>(places.positions[t].value) * frequencies[i];
      const auto cosine = static_cast<float>(std::cos(static_cast<double>(angle))) * rule.magnitude;
      const auto sine = static_cast<float>(std::sin(static_cast<double>(angle))) * rule.magnitude;
      const std::size_t one = split ? i : 2 * i;
      const std::size_t other = split ? i + half : 2 * i + 1;
      for (std::size_t h = 0; h < heads; ++h) {
        float* part = x.data() + (t * heads + h) * head_dim + first;
        const float a = part[one];
        const float b = part[other];
        part[one] = a * cosine - b * sine;
        part[other] = b * cosine + a * sine;
      }
    }
  }
  counters_.add(Cause::kActivations, 2 * x.size_bytes());
}

void ReferenceOps::walk_rows(const AttendCall& call, std::span<const TokenPos> positions, const AttentionRule& rule,
                             std::size_t oldest) {
  const std::size_t slots = call.rows();
  const std::size_t group = call.q.size() / call.keys.width;
  check(positions.size() == slots && call.values.count == call.keys.count,
        "attention: a row of k and v for every slot");
  logits_.resize(group * slots);
  weights_.resize(group * slots);
  row_.resize(slots);
  const auto turn = static_cast<std::ptrdiff_t>(oldest);
  for (std::size_t g = 0; g < group; ++g) {
    const std::span<float> logits(logits_.data() + g * slots, slots);
    const std::span<float> weights(weights_.data() + g * slots, slots);
    const std::span<const float> q = call.q.subspan(g * call.keys.width, call.keys.width);
    for_each_run(call, [&](const SlotRun& run, std::size_t at) {
      compute_logits(q, call.keys.slice(run.first, run.count), rule.logits, logits.subspan(at, run.count));
    });
    std::rotate(logits.begin(), logits.end() - turn, logits.end());
    const AlibiBias bias = rule.alibi_of(call.first_query_head + g);
    if (!rule.alibi.empty()) add_alibi(positions, call.query, bias, logits);
    if (call.policy->relocates(call.query)) {
      relocate_logits({call.policy->rotation(), positions, call.query,
                       call.q.subspan(g * call.keys.width, call.keys.width), call.keys, false, rule.logits, bias},
                      logits);
    }
    hide_rows(call, g, logits);
    softmax(logits, weights, rule.sink(call.first_query_head + g));
    std::rotate_copy(weights.begin(), weights.begin() + turn, weights.end(), row_.begin());
    add_values(call, call.out.subspan(g * call.values.width, call.values.width));
  }
  counters_.add(Cause::kKvRead, bytes_read(call));
  counters_.add(Cause::kActivations, call.q.size_bytes() + call.out.size_bytes());
}

// The rows' values by the weights in row_.
void ReferenceOps::add_values(const AttendCall& call, std::span<float> out) {
  for_each_run(call, [&](const SlotRun& run, std::size_t at) {
    run_out_.resize(out.size());
    const std::span<float> sum = at == 0 ? out : std::span<float>(run_out_);
    weighted_sum(std::span(row_).subspan(at, run.count), call.values.slice(run.first, run.count), sum);
    for (std::size_t i = 0; at > 0 && i < out.size(); ++i) out[i] += sum[i];
  });
}

void ReferenceOps::attend_row(const AttendCall& call, const AttentionRule& rule, std::size_t oldest) {
  const std::span<const TokenPos> positions = call.positions();
  walk_rows(call, positions, rule, oldest);
  if (call.selected != nullptr) return show_selected(call, rule, logits_);
  const PolicyTraits& traits = call.policy->traits();
  if (!call.policy->observes(call.query)) return;
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
      call.policy->admit(call.head, row.query);
      const PromptRows seen = prompt_rows(*call.policy, call.head, row.query);
      row.keys = call.keys.slice(seen.first, seen.count);
      row.values = call.values.slice(seen.first, seen.count);
      row.stored_bytes = seen.count * call.stored_row_bytes;
      attend_row(row, rule, seen.oldest);
    }
  }
}

void ReferenceOps::gated(Activation f, std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  check(gate.size() == up.size() && gate.size() == out.size(), "gated: equal sizes");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = gated_of(f, gate[i], up[i]);
  counters_.add(Cause::kActivations, gate.size_bytes() + up.size_bytes() + out.size_bytes());
}

void ReferenceOps::activate(Activation f, std::span<float> x) {
  for (float& value : x) value = activation_of(f, value);
  counters_.add(Cause::kActivations, 2 * x.size_bytes());
}

void ReferenceOps::cap(std::span<float> x, float scale, float softcap) {
  for (float& value : x) {
    value *= scale;
    if (softcap > 0) value = softcap * std::tanh(value / softcap);
  }
}

void ReferenceOps::add_scaled_rows(std::span<float> x, std::size_t width, std::span<const std::uint32_t> rows,
                                   std::span<const float> factors, std::span<const float> y) {
  check(y.size() == rows.size() * width && factors.size() == rows.size(), "add_scaled_rows: a row and a factor each");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < width; ++i) x[rows[r] * width + i] += factors[r] * y[r * width + i];
  }
  counters_.add(Cause::kActivations, 3 * y.size_bytes());
}

void ReferenceOps::add_residual(std::span<float> x, std::span<const float> y, float factor) {
  check(x.size() == y.size(), "add_residual: equal sizes");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += factor * y[i];
  counters_.add(Cause::kActivations, 2 * x.size_bytes() + y.size_bytes());
}

}  // namespace kvroof
