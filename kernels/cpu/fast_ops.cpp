#include "kernels/cpu/fast_ops.hpp"

#include <cblas.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/fast_attention.hpp"
#include "kernels/cpu/fast_kernels.hpp"
#include "kernels/cpu/rotary_angles.hpp"
#include "kernels/cpu/scratch.hpp"
#include "sim/core/error.hpp"
#include "sim/core/thread_pool.hpp"

namespace kvroof {
namespace {

// Results do not depend on the number of threads: how the rows of a product for few tokens are cut changes no bit, and
// the other cuts are these constants.
constexpr std::size_t kBlasTokens = 32;                // from here on the products are worth converting weights for
constexpr std::size_t kTasksOfThread = 4;              // of a product for few tokens: enough for threads to even out,
constexpr std::size_t kLeastTaskBytes = 128 * 1024;    // large enough to be worth waking one,
constexpr std::size_t kMostTaskBytes = 1024 * 1024;    // and long enough for the hardware to prefetch
constexpr std::size_t kBlasTaskBytes = 512 * 1024;     // of weights as float: a task of a product for many tokens
constexpr std::size_t kElementwiseTask = 32 * 1024;    // elements

thread_local Scratch weight_scratch;

std::uint64_t float_bytes(std::size_t count) { return std::uint64_t{count} * sizeof(float); }

// Rows that one task takes, a multiple of eight.
std::size_t rows_of_task(std::size_t task_bytes, std::size_t row_bytes) {
  return std::max<std::size_t>(8, task_bytes / std::max<std::size_t>(1, row_bytes) / 8 * 8);
}

class FastOps final : public Ops {
 public:
  explicit FastOps(unsigned threads) : pool_(threads) { openblas_set_num_threads(1); }

  void embed(const Weight& table, std::span<const std::int64_t> ids, float scale, std::span<float> out) override {
    check(out.size() == ids.size() * table.cols, "embed: one output row an id");
    for (std::size_t t = 0; t < ids.size(); ++t) {
      check(ids[t] >= 0 && static_cast<std::size_t>(ids[t]) < table.rows, "embed: ids lie in the table");
      fast::convert_rows(one_row(table, static_cast<std::size_t>(ids[t])), out.data() + t * table.cols);
    }
    if (scale != 1) {
      for (float& value : out) value *= scale;
    }
    counters_.add(Cause::kWeights, ids.size() * table.cols * size_of(table.type));
    counters_.add(Cause::kActivations, float_bytes(out.size()));
  }

  void add_rows(const Weight& table, std::span<const std::uint32_t> rows, std::span<float> x) override {
    check(x.size() == rows.size() * table.cols, "add_rows: one row of x an index");
    float* floats = norm_scratch_.floats(table.cols);
    for (std::size_t t = 0; t < rows.size(); ++t) {
      check(rows[t] < table.rows, "add_rows: rows lie in the table");
      fast::convert_rows(one_row(table, rows[t]), floats);
      fast::add(x.subspan(t * table.cols, table.cols), {floats, table.cols});
    }
    counters_.add(Cause::kWeights, rows.size() * table.cols * size_of(table.type));
  }

  void norm(std::span<const float> x, const Norm& norm, const NormRule& rule, std::span<float> out) override {
    const std::size_t width = norm.scale.cols;
    check(out.size() == x.size() && x.size() % width == 0, "norm: whole rows");
    const std::span<const float> scale = as_floats(norm.scale, norm_scratch_);
    const std::span<const float> shift =
        norm.bias.empty() ? std::span<const float>() : as_floats(norm.bias, bias_scratch_);
    for_rows(x.size() / width, width, [&](std::size_t row) {
      const std::size_t at = row % norm.scale.rows * width;
      const auto in = x.subspan(row * width, width);
      const auto to = out.subspan(row * width, width);
      if (rule.kind == NormKind::kRms) {
        fast::rms_norm_row(in, scale.subspan(at, width), rule.eps, rule.offset, to);
      } else {
        fast::layer_norm_row(in, scale.subspan(at, width), shift.empty() ? shift : shift.subspan(at, width),
                             {rule.eps, rule.offset}, to);
      }
    });
    counters_.add(Cause::kWeights, norm.scale.bytes() + norm.bias.bytes());
    counters_.add(Cause::kActivations, float_bytes(x.size() + out.size()));
  }

  void linear(std::span<const float> x, const Weight& w, const Weight* bias, std::span<float> out) override {
    const std::size_t tokens = x.size() / w.cols;
    check(x.size() == tokens * w.cols && out.size() == tokens * w.rows, "linear: whole rows in and out");
    const bool has_bias = bias != nullptr && !bias->empty();
    check(!has_bias || bias->cols == w.rows, "linear: a bias for each output");
    const std::span<const float> shift = has_bias ? as_floats(*bias, bias_scratch_) : std::span<const float>();
    multiply(x, w, 1, shift, tokens, out);
    counters_.add(Cause::kWeights, w.bytes() + (has_bias ? bias->bytes() : 0));
    counters_.add(Cause::kActivations, float_bytes(x.size() + out.size()));
  }

  void linear_heads(std::span<const float> x, const Weight& w, std::uint32_t heads, std::span<float> out) override {
    const std::size_t rows = w.rows / heads;
    const std::size_t tokens = x.size() / w.cols / heads;
    check(x.size() == tokens * heads * w.cols && out.size() == tokens * w.rows && w.rows == rows * heads,
          "linear_heads: whole rows in and out");
    multiply(x, w, heads, {}, tokens, out);
    counters_.add(Cause::kWeights, w.bytes());
    counters_.add(Cause::kActivations, float_bytes(x.size() + out.size()));
  }

  void rotate(std::span<float> x, const RowPlaces& places, std::uint32_t heads, std::uint32_t head_dim,
              std::uint32_t first, const RotaryRule& rule) override {
    const std::size_t row = std::size_t{heads} * head_dim;
    check(x.size() == places.positions.size() * row && first + rule.dims <= head_dim && rule.dims % 2 == 0,
          "rotate: whole rows, pairs within a head");
    const RotaryAngles& angles = rotary_tables_.angles(places, rule);
    const std::size_t pairs = rule.dims / 2;
    for_rows(places.positions.size(), row, [&](std::size_t t) {
      const std::span<const float> cosines(angles.cosines.data() + t * pairs, pairs);
      const std::span<const float> sines(angles.sines.data() + t * pairs, pairs);
      for (std::size_t h = 0; h < heads; ++h) {
        float* part = x.data() + t * row + h * head_dim + first;
        if (rule.style == RotaryStyle::kHalfSplit) {
          fast::rotate_half_split(part, cosines, sines);
        } else {
          fast::rotate_adjacent(part, cosines, sines);
        }
      }
    });
    counters_.add(Cause::kActivations, 2 * float_bytes(x.size()));
  }

  void attend(std::span<const AttendCall> calls, const AttentionRule& rule) override {
    attender_.attend(calls, rule, pool_);
    for (const AttendCall& call : calls) {
      counters_.add(Cause::kKvRead, bytes_read(call));
      counters_.add(Cause::kActivations, float_bytes(call.q.size() + call.out.size()));
    }
  }

  void prefill_attend(std::span<const PrefillCall> calls, const AttentionRule& rule) override {
    pool_.parallel_for(calls.size(), [&](std::size_t i) { fast::prefill_attend_one(calls[i], rule); });
    for (const PrefillCall& call : calls) {
      const std::uint64_t group = call.policy->group();
      const std::uint64_t rows = fast::prefill_rows_walked(call.keys.count, call.policy->window());
      counters_.add(Cause::kKvRead, bytes_read(call, rows));
      counters_.add(Cause::kActivations, float_bytes(call.keys.count * group * (call.keys.width + call.values.width)));
    }
  }

  void gated(Activation f, std::span<const float> gate, std::span<const float> up, std::span<float> out) override {
    check(gate.size() == up.size() && out.size() == up.size(), "gated: equal sizes");
    for_parts(out.size(), [&](std::size_t first, std::size_t count) {
      fast::gated(f, gate.subspan(first, count), up.subspan(first, count), out.subspan(first, count));
    });
    counters_.add(Cause::kActivations, float_bytes(gate.size() + up.size() + out.size()));
  }

  void activate(Activation f, std::span<float> x) override {
    for_parts(x.size(), [&](std::size_t first, std::size_t count) { fast::activate(f, x.subspan(first, count)); });
    counters_.add(Cause::kActivations, 2 * float_bytes(x.size()));
  }

  void for_each(std::size_t count, const std::function<void(std::size_t)>& body) override {
    pool_.parallel_for(count, body);
  }

  void cap(std::span<float> x, float scale, float softcap) override {
    if (scale == 1 && softcap <= 0) return;
    for_parts(x.size(), [&](std::size_t first, std::size_t count) {
      const std::span<float> part = x.subspan(first, count);
      for (float& value : part) value *= scale;
      if (softcap > 0) fast::soft_cap(part, softcap);
    });
  }

  void add_scaled_rows(std::span<float> x, std::size_t width, std::span<const std::uint32_t> rows,
                       std::span<const float> factors, std::span<const float> y) override {
    check(y.size() == rows.size() * width && factors.size() == rows.size(), "add_scaled_rows: a row and a factor each");
    for_rows(rows.size(), width, [&](std::size_t r) {
      fast::add_scaled(x.subspan(rows[r] * width, width), factors[r], y.subspan(r * width, width));
    });
    counters_.add(Cause::kActivations, 3 * float_bytes(y.size()));
  }

  void add_residual(std::span<float> x, std::span<const float> y, float factor) override {
    check(x.size() == y.size(), "add_residual: equal sizes");
    for_parts(x.size(), [&](std::size_t first, std::size_t count) {
      if (factor == 1) return fast::add(x.subspan(first, count), y.subspan(first, count));
      fast::add_scaled(x.subspan(first, count), factor, y.subspan(first, count));
    });
    counters_.add(Cause::kActivations, float_bytes(2 * x.size() + y.size()));
  }

  [[nodiscard]] std::uint32_t prefill_block() const override { return fast::kPrefillBlock; }

 private:
  static RowsView one_row(const Weight& table, std::size_t row) {
    RowsView view = table.view();
    view.data = view.row(row);
    view.count = 1;
    return view;
  }

  static std::span<const float> as_floats(const Weight& w, Scratch& scratch) {
    const std::size_t count = w.rows * w.cols;
    if (w.type == DType::kF32) return {reinterpret_cast<const float*>(w.data.data()), count};
    float* floats = scratch.floats(count);
    fast::convert_rows(w.view(), floats);
    return {floats, count};
  }

  // Calls body(first, count) over [0, size) in parts of kElementwiseTask.
  template <class Body>
  void for_parts(std::size_t size, const Body& body) {
    pool_.parallel_for((size + kElementwiseTask - 1) / kElementwiseTask, [&](std::size_t i) {
      const std::size_t first = i * kElementwiseTask;
      body(first, std::min(kElementwiseTask, size - first));
    });
  }

  // Calls body(row) for rows of `width` elements, several to a task.
  template <class Body>
  void for_rows(std::size_t rows, std::size_t width, const Body& body) {
    const std::size_t rows_a_task = std::max<std::size_t>(1, kElementwiseTask / std::max<std::size_t>(1, width));
    pool_.parallel_for((rows + rows_a_task - 1) / rows_a_task, [&](std::size_t i) {
      for (std::size_t row = i * rows_a_task; row < std::min(rows, (i + 1) * rows_a_task); ++row) body(row);
    });
  }

  // Of each head h: out [t, h, rows of a head] = x [t, h, w.cols] · (the head's rows of w)ᵀ + bias. Few tokens meet the
  // weights as they are stored; for many, each task converts its rows once and leaves the rest to BLAS.
  void multiply(std::span<const float> x, const Weight& w, std::size_t heads, std::span<const float> bias,
                std::size_t tokens, std::span<float> out) {
    const bool many = tokens >= kBlasTokens;
    const std::size_t size = fast::packed_size(w.cols);
    float* packed = many ? nullptr : packed_scratch_.floats(heads * tokens * size);
    for (std::size_t h = 0; h < heads && !many; ++h) {
      fast::pack_vectors(w.type, x.data() + h * w.cols, heads * w.cols, tokens, w.cols, packed + h * tokens * size);
    }
    const std::size_t even_bytes = w.bytes() / (kTasksOfThread * pool_.threads());
    const std::size_t task_rows =
        many ? rows_of_task(kBlasTaskBytes, w.cols * sizeof(float))
             : rows_of_task(std::clamp(even_bytes, kLeastTaskBytes, kMostTaskBytes), w.cols * size_of(w.type));
    for_weight_rows(w, heads, task_rows, [&](const RowsView& rows, std::size_t first, std::size_t head) {
      if (many) {
        multiply_floats(x.data() + head * w.cols, heads * w.cols, as_float_rows(rows), rows, tokens,
                        out.data() + first, w.rows);
      } else {
        fast::dot_rows(rows, packed + head * tokens * size, tokens, out.data() + first, w.rows);
      }
      add_bias(bias, tokens, first, rows.count, w.rows, out);
    });
  }

  // Calls body(rows of w, index of the first, head) for tasks of at most `task_rows` rows, each within one head.
  template <class Body>
  void for_weight_rows(const Weight& w, std::size_t heads, std::size_t task_rows, const Body& body) {
    const std::size_t head_rows = w.rows / heads;
    const std::size_t tasks = (head_rows + task_rows - 1) / task_rows;
    pool_.parallel_for(heads * tasks, [&](std::size_t i) {
      const std::size_t first = i % tasks * task_rows;
      const std::size_t at = i / tasks * head_rows + first;
      RowsView rows = w.view();
      rows.data = rows.row(at);
      rows.count = std::min(task_rows, head_rows - first);
      body(rows, at, i / tasks);
    });
  }

  static const float* as_float_rows(const RowsView& rows) {
    if (rows.type == DType::kF32) return reinterpret_cast<const float*>(rows.data);
    float* converted = weight_scratch.floats(rows.count * rows.width);
    fast::convert_rows(rows, converted);
    return converted;
  }

  static void multiply_floats(const float* x, std::size_t x_stride, const float* floats, const RowsView& rows,
                              std::size_t tokens, float* out, std::size_t out_stride) {
    const auto width = static_cast<int>(rows.width);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(tokens), static_cast<int>(rows.count), width,
                1.0F, x, static_cast<int>(x_stride), floats, width, 0.0F, out, static_cast<int>(out_stride));
  }

  static void add_bias(std::span<const float> bias, std::size_t tokens, std::size_t first, std::size_t count,
                       std::size_t stride, std::span<float> out) {
    if (bias.empty()) return;
    for (std::size_t t = 0; t < tokens; ++t) {
      fast::add(out.subspan(t * stride + first, count), bias.subspan(first, count));
    }
  }

  ThreadPool pool_;
  Scratch packed_scratch_, norm_scratch_, bias_scratch_;
  RotaryTables rotary_tables_;
  fast::Attender attender_;
};

}  // namespace

std::unique_ptr<Ops> make_fast_ops(unsigned threads) { return std::make_unique<FastOps>(threads); }

}  // namespace kvroof
