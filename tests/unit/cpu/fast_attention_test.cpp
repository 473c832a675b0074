#include "kernels/cpu/fast_attention.hpp"

#include <set>

#include "kernels/cpu/reference_ops.hpp"
#include "sim/core/alibi.hpp"
#include "sim/core/error.hpp"
#include "sim/policy/layer_policy.hpp"
#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;

namespace {

// k or v rows of all heads, [heads][rows][width], with three elements of NaN behind each row.
struct Cache {
  DType type;
  std::size_t rows, width;
  std::vector<std::byte> memory;

  Cache(DType t, std::size_t heads, std::size_t count, std::size_t w, std::uint32_t stream)
      : type(t),
        rows(count),
        width(w) {
    std::vector<float> x = numbers(heads * rows * stride(), stream);
    for (std::size_t r = 0; r < heads * rows; ++r) {
      std::fill_n(x.begin() + r * stride() + width, 3, std::numeric_limits<float>::quiet_NaN());
    }
    memory.resize(x.size() * size_of(type));
    convert_from_float(type, x, memory.data());
  }
  [[nodiscard]] std::size_t stride() const { return width + 3; }
  [[nodiscard]] RowsView head(std::size_t h, std::size_t count) const {
    return {memory.data() + h * rows * stride() * size_of(type), type, stride(), width, count};
  }
};

struct Shape {
  std::uint32_t heads, group;
  std::size_t k_width, v_width;
};

PolicyContext context(const Shape& shape, std::uint32_t prompt, std::uint32_t window) {
  PolicyContext c;
  c.window = window;
  c.layers = 1;
  c.head_dim = static_cast<std::uint32_t>(shape.k_width);
  c.prompt = prompt;
  c.requested_new_tokens = 10;
  return c;
}

LayerPolicy make_policy(const std::string& spec, const Shape& shape, std::uint32_t prompt, std::uint32_t window = 0) {
  return LayerPolicy(parse_policies(spec).at(0), context(shape, prompt, window), shape.heads * shape.group,
                     shape.heads);
}

// softmax(scale · q kᵀ + bias) v of one query over rows [first, …), in double precision.
std::vector<double> attention(std::span<const float> q, const RowsView& keys, const RowsView& values, double scale,
                              double softcap, double slope, std::uint32_t query, std::size_t first) {
  std::vector<double> weights(keys.count);
  double highest = -1e300;
  for (std::size_t s = first; s < keys.count; ++s) {
    double dot = 0;
    for (std::size_t i = 0; i < keys.width; ++i) dot += static_cast<double>(q[i]) * at(keys, s, i);
    weights[s] = softcap > 0 ? softcap * std::tanh(scale * dot / softcap) : scale * dot;
    weights[s] += slope * (static_cast<double>(s) - query);
    highest = std::max(highest, weights[s]);
  }
  double sum = 0;
  for (std::size_t s = first; s < keys.count; ++s) sum += weights[s] = std::exp(weights[s] - highest);
  std::vector<double> out(values.width);
  for (std::size_t s = first; s < values.count; ++s) {
    for (std::size_t i = 0; i < values.width; ++i) out[i] += weights[s] / sum * at(values, s, i);
  }
  return out;
}

struct Problem {
  Shape shape;
  std::uint32_t rows;  // of the prompt, or slots
  Cache keys, values;
  std::vector<float> q;  // [rows][query heads][k_width]
  std::vector<float> slopes;
  AttentionRule rule;

  Problem(Shape s, DType type, std::uint32_t n, float softcap = 0, bool alibi = false)
      : shape(s), rows(n), keys(type, s.heads, n, s.k_width, 40), values(type, s.heads, n, s.v_width, 41),
        q(numbers(std::size_t{n} * s.heads * s.group * s.k_width, 42)) {
    for (float& x : q) x = round_to(type, 6 * x);  // peaked rows, at the precision of the cache
    if (alibi) slopes = alibi_slopes(s.heads * s.group);
    rule = {{1 / std::sqrt(static_cast<float>(s.k_width)), softcap}, slopes};
  }
  [[nodiscard]] std::size_t q_stride() const { return shape.heads * shape.group * shape.k_width; }
  [[nodiscard]] std::size_t out_stride() const { return shape.heads * shape.group * shape.v_width; }

  [[nodiscard]] std::vector<double> expected(std::uint32_t row, std::uint32_t window = 0) const {
    const std::size_t first = window > 0 && row >= window ? row + 1 - window : 0;
    std::vector<double> out;
    for (std::uint32_t h = 0; h < shape.heads * shape.group; ++h) {
      const std::size_t storage = h / shape.group;
      const auto of_head = attention(std::span(q).subspan(row * q_stride() + h * shape.k_width, shape.k_width),
                                     keys.head(storage, row + 1), values.head(storage, row + 1),
                                     static_cast<double>(rule.logits.scale), static_cast<double>(rule.logits.softcap),
                                     slopes.empty() ? 0.0 : static_cast<double>(slopes[h]), row, first);
      out.insert(out.end(), of_head.begin(), of_head.end());
    }
    return out;
  }

  // The whole prompt through `ops`.
  [[nodiscard]] std::vector<float> prefill(Ops& ops, LayerPolicy& policy) const {
    std::vector<float> out = poisoned(rows * out_stride());
    std::vector<PrefillCall> calls;
    for (std::uint32_t h = 0; h < shape.heads; ++h) {
      calls.push_back({q.data() + h * shape.group * shape.k_width, q_stride(), keys.head(h, rows), values.head(h, rows),
                       out.data() + h * shape.group * shape.v_width, out_stride(), &policy, HeadId(h),
                       h * shape.group});
    }
    ops.prefill_attend(calls, rule);
    return out;
  }

  // The last row through `ops`, over a policy that holds all rows.
  [[nodiscard]] std::vector<float> attend(Ops& ops, LayerPolicy& policy) const {
    for (std::uint32_t i = 0; i < rows; ++i) {
      for (std::uint32_t h = 0; h < shape.heads; ++h) policy.admit(HeadId(h), TokenPos(i));
    }
    std::vector<float> out = poisoned(out_stride());
    std::vector<AttendCall> calls;
    for (std::uint32_t h = 0; h < shape.heads; ++h) {
      const std::size_t q_at = (rows - 1) * q_stride() + h * shape.group * shape.k_width;
      calls.push_back({std::span(q).subspan(q_at, shape.group * shape.k_width), keys.head(h, rows),
                       values.head(h, rows),
                       std::span(out).subspan(h * shape.group * shape.v_width, shape.group * shape.v_width),
                       TokenPos(rows - 1), &policy, HeadId(h), h * shape.group});
    }
    ops.attend(calls, rule);
    return out;
  }
};

constexpr Shape kShapes[] = {{1, 1, 1, 1}, {2, 1, 64, 64}, {3, 2, 40, 40}, {1, 5, 33, 17}, {2, 4, 128, 96}};

}  // namespace

TEST_CASE("attend equals softmax attention in double precision for every type, group, odd width and number of slots") {
  for (const DType type : kTypes) {
    for (const Shape& shape : kShapes) {
      for (const std::uint32_t slots : {1U, 2U, 7U, 8U, 65U, 200U}) {
        for (const bool variant : {false, true}) {
          const Problem problem(shape, type, slots, variant ? 3.0F : 0.0F, variant);
          const std::vector<double> expected = problem.expected(slots - 1);
          on_every_target([&] {
            INFO(name_of(type) << " group " << shape.group << " widths " << shape.k_width << ", " << shape.v_width
                               << " slots " << slots << " soft-cap and ALiBi " << variant);
            LayerPolicy policy = make_policy("full", shape, slots);
            CHECK(deviation(problem.attend(*make_fast_ops(2), policy), expected) <= 5e-6);
          });
        }
      }
    }
  }
}

TEST_CASE("prefill_attend equals causal attention in double precision in every row, across blocks and tiles") {
  for (const DType type : kTypes) {
    for (const Shape& shape : kShapes) {
      for (const std::uint32_t rows : {1U, 2U, 63U, 64U, 65U, 130U, 300U}) {
        if (rows > 65 && shape.group > 2) continue;  // the large cases are about blocks, not groups
        for (const bool variant : {false, true}) {
          const Problem problem(shape, type, rows, variant ? 3.0F : 0.0F, variant);
          LayerPolicy policy = make_policy("full", shape, rows);
          const std::vector<float> out = problem.prefill(*make_fast_ops(2), policy);
          INFO(name_of(type) << " group " << shape.group << " rows " << rows << " soft-cap and ALiBi " << variant);
          std::set<std::uint32_t> some;  // rows at the ends of blocks, and a few others
          for (std::uint32_t row = 0; row < rows; row += rows > 100 ? 37 : 1) some.insert(row);
          for (const std::uint32_t row : {62U, 63U, 64U, 127U, 128U, rows - 1}) some.insert(std::min(row, rows - 1));
          std::vector<float> results;
          std::vector<double> expected;
          for (const std::uint32_t row : some) {
            const auto first = out.begin() + row * problem.out_stride();
            results.insert(results.end(), first, first + problem.out_stride());
            const std::vector<double> of_row = problem.expected(row);
            expected.insert(expected.end(), of_row.begin(), of_row.end());
          }
          CHECK(deviation(results, expected) <= 5e-6);
        }
      }
    }
  }
}

TEST_CASE("prefill_attend under a window equals attention over the last tokens in every row, on both back ends") {
  for (const Shape& shape : kShapes) {
    for (const std::uint32_t window : {1U, 2U, 5U, 40U, 64U, 65U, 129U}) {
      for (const char* spec : {"full", "h2o:budget=200"}) {  // without and with rows for the policy
        const Problem problem(shape, DType::kBF16, 130, 3.0F, true);
        INFO("group " << shape.group << " width " << shape.k_width << " window " << window << " " << spec);
        std::vector<double> expected;
        for (std::uint32_t row = 0; row < problem.rows; ++row) {
          const std::vector<double> of_row = problem.expected(row, window);
          expected.insert(expected.end(), of_row.begin(), of_row.end());
        }
        LayerPolicy fast = make_policy(spec, shape, problem.rows, window);
        const auto ops = make_fast_ops(2);
        CHECK(deviation(problem.prefill(*ops, fast), expected) <= 5e-6);
        LayerPolicy plain = make_policy(spec, shape, problem.rows, window);
        ReferenceOps reference;
        CHECK(deviation(problem.prefill(reference, plain), expected) <= 5e-6);
        CHECK(fast.take_counts() == plain.take_counts());
      }
    }
  }
}

TEST_CASE("under a window both back ends count the rows that they walk, and no others") {
  const Problem problem({2, 4, 64, 32}, DType::kBF16, 150);
  constexpr std::uint64_t kRow = (64 + 32) * 2;
  LayerPolicy policy = make_policy("full", problem.shape, 150, 30);
  const auto ops = make_fast_ops(2);
  (void)problem.prefill(*ops, policy);
  // Rows 64 to 127 see tokens from 35 on, rows 128 to 149 from 99 on.
  CHECK(ops->counters()[Cause::kKvRead] == 2 * (64 + (128 - 35) + (150 - 99)) * kRow);
  LayerPolicy again = make_policy("full", problem.shape, 150, 30);
  ReferenceOps reference;
  (void)problem.prefill(reference, again);
  CHECK(reference.counters()[Cause::kKvRead] == 2 * (30 * 31 / 2 + 120 * 30) * kRow);
}

TEST_CASE("attention has the same bits for 1, 2 and 16 threads") {
  for (const DType type : kTypes) {
    const Problem problem({5, 2, 64, 64}, type, 150);
    std::vector<std::vector<float>> prompts, rows;
    for (const unsigned threads : {1U, 2U, 16U}) {
      LayerPolicy first = make_policy("full", problem.shape, problem.rows);
      LayerPolicy second = make_policy("full", problem.shape, problem.rows);
      prompts.push_back(problem.prefill(*make_fast_ops(threads), first));
      rows.push_back(problem.attend(*make_fast_ops(threads), second));
    }
    CHECK(same_bits(prompts[0], prompts[1]));
    CHECK(same_bits(prompts[0], prompts[2]));
    CHECK(same_bits(rows[0], rows[1]));
    CHECK(same_bits(rows[0], rows[2]));
  }
}

TEST_CASE(
    "policies see the rows of the fast back end as they see those of the reference: the same tokens are given up") {
  for (const std::string spec : {"h2o:budget=30", "window:budget=30", "streaming:budget=30"}) {
    for (const Shape& shape : {Shape{3, 1, 64, 64}, Shape{2, 4, 40, 24}}) {
      const Problem problem(shape, DType::kF32, 140);
      for (const std::uint32_t window : {0U, 75U}) {
        LayerPolicy fast = make_policy(spec, shape, problem.rows, window);
        LayerPolicy reference = make_policy(spec, shape, problem.rows, window);
        (void)problem.prefill(*make_fast_ops(2), fast);
        ReferenceOps ops;
        (void)problem.prefill(ops, reference);
        fast.finish_row(TokenPos(problem.rows - 1));
        reference.finish_row(TokenPos(problem.rows - 1));
        for (std::uint32_t h = 0; h < fast.storage_heads(); ++h) {
          INFO(spec << " head " << h << " window " << window);
          // One of the window's tokens goes unasked: the next row does not see it.
          CHECK(fast.eviction(HeadId(h)).evicted.size() == (window == 0 ? 110 : window - 1 - 30));
          CHECK(fast.eviction(HeadId(h)).evicted == reference.eviction(HeadId(h)).evicted);
        }
        CHECK(fast.take_counts() == reference.take_counts());
      }
    }
  }
}

TEST_CASE("a decode step shows its row: h2o then gives up the token with the least attention") {
  // One head, three tokens; the query looks away from token 1, and a budget of 2 keeps one heavy and one recent token.
  const Shape shape{1, 1, 2, 2};
  const std::vector<float> keys = {5, 0, -5, 0, 5, 0};
  const std::vector<float> values(6, 1.0F);
  const std::vector<float> q = {1, 0};
  std::vector<float> out = poisoned(2);
  LayerPolicy policy = make_policy("h2o:budget=2", shape, 2);
  for (std::uint32_t i = 0; i < 2; ++i) policy.admit(HeadId(0), TokenPos(i));
  policy.finish_row(TokenPos(1));
  policy.admit(HeadId(0), TokenPos(2));
  const RowsView k{reinterpret_cast<const std::byte*>(keys.data()), DType::kF32, 2, 2, 3};
  const RowsView v{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, 2, 2, 3};
  const AttendCall call{q, k, v, out, TokenPos(2), &policy, HeadId(0), 0};
  make_fast_ops(1)->attend({&call, 1}, {});
  policy.finish_row(TokenPos(2));
  CHECK(policy.eviction(HeadId(0)).evicted == std::vector<TokenPos>{TokenPos(1)});
}

TEST_CASE("attend counts every row of k and v once for all query heads of its group") {
  const Problem problem({2, 4, 64, 32}, DType::kBF16, 9);
  LayerPolicy policy = make_policy("full", problem.shape, 9);
  const auto ops = make_fast_ops(2);
  (void)problem.attend(*ops, policy);
  CHECK(ops->counters()[Cause::kKvRead] == 2 * 9 * (64 + 32) * 2);
  CHECK(ops->counters()[Cause::kActivations] == 8 * (64 + 32) * 4);
  CHECK(ops->counters().total() == 2 * 9 * 96 * 2 + 8 * 96 * 4);
}

TEST_CASE("prefill_attend counts the rows that it walks: each block of queries walks the tokens up to its end") {
  const Problem problem({2, 4, 64, 32}, DType::kBF16, 150);
  LayerPolicy policy = make_policy("full", problem.shape, 150);
  const auto ops = make_fast_ops(2);
  REQUIRE(ops->prefill_block() == 64);
  (void)problem.prefill(*ops, policy);
  CHECK(ops->counters()[Cause::kKvRead] == 2 * (64 + 128 + 150) * (64 + 32) * 2);
  CHECK(ops->counters()[Cause::kActivations] == 150 * 8 * (64 + 32) * 4);
}

TEST_CASE("few heads over many slots are shared by the threads: the same bits, the same rows shown, the same bytes") {
  for (const DType type : kTypes) {
    for (const Shape& shape : {Shape{1, 5, 64, 48}, Shape{3, 2, 40, 40}}) {
      const Problem problem(shape, type, 3001, 3.0F, true);
      std::vector<float> alone;
      std::vector<TokenPos> evicted;
      for (const unsigned threads : {1U, 2U, 16U}) {
        INFO(name_of(type) << " heads " << shape.heads << " threads " << threads);
        LayerPolicy policy = make_policy("h2o:budget=30", shape, problem.rows);
        const auto ops = make_fast_ops(threads);
        const std::vector<float> out = problem.attend(*ops, policy);
        policy.finish_row(TokenPos(problem.rows - 1));
        if (threads == 1) {
          alone = out;
          evicted = policy.eviction(HeadId(0)).evicted;
          CHECK(deviation(out, problem.expected(problem.rows - 1)) <= 5e-6);
          CHECK(evicted.size() == 2971);
        }
        CHECK(same_bits(out, alone));
        CHECK(policy.eviction(HeadId(0)).evicted == evicted);
        CHECK(ops->counters()[Cause::kKvRead] ==
              shape.heads * 3001 * (shape.k_width + shape.v_width) * size_of(type));
      }
    }
  }
}
