// Operators that move rows: embeddings, learned positions, rotation, products by head, outputs of experts.
#include "kernels/cpu/kv_cache.hpp"
#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;

namespace {

// Rotation of elements [first, first + dims) of every head in double precision, by the rule's own frequencies.
std::vector<double> rotated(std::span<const float> x, const RowPlaces& places, std::size_t heads, std::size_t head_dim,
                            std::size_t first, const RotaryRule& rule) {
  std::vector<double> out(x.begin(), x.end());
  for (std::size_t t = 0; t < places.positions.size(); ++t) {
    const bool use_long = !places.use_long.empty() && places.use_long[t] != 0;
    const auto& frequencies = use_long ? rule.long_inverse_frequencies : rule.inverse_frequencies;
    for (std::size_t i = 0; i < rule.dims / 2; ++i) {
      const double angle = places.positions[t].value * static_cast<double>(frequencies[i]);
      const double cosine = std::cos(angle) * static_cast<double>(rule.magnitude);
      const double sine = std::sin(angle) * static_cast<double>(rule.magnitude);
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t at = (t * heads + h) * head_dim + first;
        const bool split = rule.style == RotaryStyle::kHalfSplit;
        const std::size_t a = at + (split ? i : 2 * i);
        const std::size_t b = at + (split ? i + rule.dims / 2 : 2 * i + 1);
        out[a] = static_cast<double>(x[a]) * cosine - static_cast<double>(x[b]) * sine;
        out[b] = static_cast<double>(x[b]) * cosine + static_cast<double>(x[a]) * sine;
      }
    }
  }
  return out;
}

std::vector<TokenPos> positions(std::initializer_list<std::uint32_t> values) {
  std::vector<TokenPos> list;
  for (const std::uint32_t value : values) list.emplace_back(value);
  return list;
}

}  // namespace

TEST_CASE("embed gives scale · row of the table for each id and counts those rows alone") {
  for (const DType type : kTypes) {
    const Weight table = random_weight(type, 50, 37, 50);
    const std::vector<std::int64_t> ids = {49, 0, 7, 7};
    for (const float scale : {1.0F, 11.3137085F}) {
      on_every_back_end([&](Ops& ops) {
        std::vector<float> out = poisoned(4 * 37);
        ops.embed(table, ids, scale, out);
        bool equal = true;
        for (std::size_t i = 0; i < out.size(); ++i) {
          const auto row = static_cast<std::size_t>(ids[i / 37]);
          equal = equal && out[i] == static_cast<float>(at(table.view(), row, i % 37)) * scale;
        }
        CHECK(equal);
        CHECK(ops.counters()[Cause::kWeights] == 4 * 37 * size_of(type));
        CHECK(ops.counters()[Cause::kActivations] == 4 * 37 * 4);
      });
    }
  }
}

TEST_CASE("an id outside the table breaks an invariant") {
  const Weight table = random_weight(DType::kF32, 5, 3, 51);
  on_every_back_end([&](Ops& ops) {
    std::vector<float> out(3);
    for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{5}}) {
      CHECK_THROWS_AS(ops.embed(table, std::span(&id, 1), 1, out), std::logic_error);
    }
    const std::uint32_t row = 5;
    CHECK_THROWS_AS(ops.add_rows(table, std::span(&row, 1), out), std::logic_error);
  });
}

TEST_CASE("add_rows adds the named rows of the table, exactly, and counts only those rows") {
  for (const DType type : kTypes) {
    const Weight table = random_weight(type, 20, 45, 52);
    const std::vector<std::uint32_t> rows = {2, 19, 2};
    const std::vector<float> x = numbers(3 * 45, 53);
    on_every_back_end([&](Ops& ops) {
      std::vector<float> out = x;
      ops.add_rows(table, rows, out);
      bool equal = true;
      for (std::size_t i = 0; i < out.size(); ++i) {
        equal = equal && out[i] == x[i] + static_cast<float>(at(table.view(), rows[i / 45], i % 45));
      }
      CHECK(equal);
      CHECK(ops.counters()[Cause::kWeights] == 3 * 45 * size_of(type));
      CHECK(ops.counters().total() == 3 * 45 * size_of(type));
    });
  }
}

TEST_CASE("rotate turns a part of each head behind its first elements, times the rule's magnitude") {
  const auto at = positions({0, 5, 1999});
  for (const RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kAdjacentPairs}) {
    for (const std::uint32_t dims : {2U, 8U, 38U, 64U}) {
      for (const std::uint32_t first : {0U, 5U, 40U}) {
        RotaryRule rule = plain_rotary(style, dims, 10000.0);
        rule.magnitude = 1.25F;
        const std::vector<float> x = numbers(at.size() * 3 * 104, 54);
        const std::vector<double> expected = rotated(x, {at, {}}, 3, 104, first, rule);
        on_every_back_end([&](Ops& ops) {
          INFO("dims " << dims << ", first " << first);
          std::vector<float> out = x;
          ops.rotate(out, {at, {}}, 3, 104, first, rule);
          CHECK(deviation(out, expected) <= 1e-4);  // an angle near 2000 is rounded to 1.2e-4
          CHECK(ops.counters()[Cause::kActivations] == 2 * x.size() * 4);
          bool untouched = true;
          for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t element = i % 104;
            if (element < first || element >= first + dims) untouched = untouched && out[i] == x[i];
          }
          CHECK(untouched);
        });
      }
    }
  }
}

TEST_CASE("rows of long prompts take the second table, rows beside them the first") {
  RotaryRule rule = plain_rotary(RotaryStyle::kHalfSplit, 16, 10000.0);
  rule.long_inverse_frequencies = plain_inverse_frequencies(500.0, 16);
  rule.long_from = 32;
  const auto at = positions({3, 3, 40});
  const std::vector<std::uint8_t> use_long = {0, 1, 1};
  const std::vector<float> x = numbers(3 * 2 * 16, 55);
  const std::vector<double> expected = rotated(x, {at, use_long}, 2, 16, 0, rule);
  const std::vector<double> of_short = rotated(x, {at, {}}, 2, 16, 0, rule);
  REQUIRE(expected != of_short);
  on_every_back_end([&](Ops& ops) {
    std::vector<float> out = x;
    ops.rotate(out, {at, use_long}, 2, 16, 0, rule);
    CHECK(deviation(out, expected) <= 1e-5);
    out = x;
    ops.rotate(out, {at, {}}, 2, 16, 0, rule);  // the same positions, all with the first table
    CHECK(deviation(out, of_short) <= 1e-5);
  });
}

TEST_CASE("rules and positions may alternate: what is kept of one never serves another") {
  const RotaryRule local = plain_rotary(RotaryStyle::kHalfSplit, 16, 10000.0);
  const RotaryRule global = plain_rotary(RotaryStyle::kHalfSplit, 16, 1000000.0);
  const std::vector<float> x = numbers(2 * 16, 56);
  on_every_back_end([&](Ops& ops) {
    for (const std::uint32_t step : {0U, 1U, 2U}) {
      const auto at = positions({7 + step, 100 + step});
      for (int layer = 0; layer < 4; ++layer) {
        RotaryRule rule = layer % 2 == 0 ? local : global;  // at another address each time
        std::vector<float> out = x;
        ops.rotate(out, {at, {}}, 1, 16, 0, rule);
        CHECK(deviation(out, rotated(x, {at, {}}, 1, 16, 0, rule)) <= 1e-5);
      }
    }
  });
}

TEST_CASE("linear_heads equals the product of each head with rows of its own, for few tokens and many") {
  struct Size {
    std::size_t heads, rows, cols;
  };
  for (const DType type : kTypes) {
    for (const auto [heads, rows, cols] : {Size{1, 5, 7}, Size{3, 9, 33}, Size{2, 70, 40}, Size{3, 600, 130}}) {
      const Weight w = random_weight(type, heads * rows, cols, 57);
      for (const std::size_t tokens : {1, 3, 7, 40}) {
        const std::vector<float> x = numbers(tokens * heads * cols, 58);
        std::vector<double> expected(tokens * heads * rows);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const std::size_t row = i % (heads * rows);
          const float* of_head = x.data() + (i / rows) * cols;
          for (std::size_t c = 0; c < cols; ++c) expected[i] += static_cast<double>(of_head[c]) * at(w.view(), row, c);
        }
        on_every_back_end([&](Ops& ops) {
          INFO(name_of(type) << ", heads " << heads << ", rows " << rows << ", tokens " << tokens);
          std::vector<float> out = poisoned(expected.size());
          ops.linear_heads(x, w, static_cast<std::uint32_t>(heads), out);
          CHECK(deviation(out, expected) <= 1e-6 * std::sqrt(static_cast<double>(cols)));
          CHECK(ops.counters()[Cause::kWeights] == w.bytes());
          CHECK(ops.counters()[Cause::kActivations] == (x.size() + out.size()) * 4);
        });
      }
    }
  }
}

TEST_CASE("linear_heads has the same bits for 1 and 16 threads") {
  const Weight w = random_weight(DType::kBF16, 4 * 300, 256, 59);
  for (const std::size_t tokens : {1, 5, 40}) {
    const std::vector<float> x = numbers(tokens * 4 * 256, 60);
    std::vector<float> one = poisoned(tokens * w.rows);
    std::vector<float> many = poisoned(tokens * w.rows);
    make_fast_ops(1)->linear_heads(x, w, 4, one);
    make_fast_ops(16)->linear_heads(x, w, 4, many);
    CHECK(same_bits(one, many));
  }
}

TEST_CASE("add_scaled_rows adds factor · row to the named rows and leaves the others") {
  for (const std::size_t width : {1, 31, 64, 5000}) {
    const std::vector<std::uint32_t> rows = {4, 0, 7, 2};
    const std::vector<float> factors = {0.5F, -2.0F, 0.0F, 1.0F};
    const std::vector<float> x = numbers(9 * width, 61);
    const std::vector<float> y = numbers(4 * width, 62);
    std::vector<double> expected(x.begin(), x.end());
    for (std::size_t i = 0; i < y.size(); ++i) {
      expected[rows[i / width] * width + i % width] +=
          static_cast<double>(factors[i / width]) * static_cast<double>(y[i]);
    }
    on_every_back_end([&](Ops& ops) {
      std::vector<float> out = x;
      ops.add_scaled_rows(out, width, rows, factors, y);
      CHECK(deviation(out, expected) <= 2e-7);
      CHECK(ops.counters()[Cause::kActivations] == 3 * y.size() * 4);
    });
  }
  on_every_back_end([](Ops& ops) {
    std::vector<float> x = {1, 1};
    const float y = std::numeric_limits<float>::quiet_NaN();
    const std::uint32_t row = 1;
    const float zero = 0;
    ops.add_scaled_rows(x, 1, std::span(&row, 1), std::span(&zero, 1), std::span(&y, 1));
    CHECK(std::isnan(x[1]));
  });
}

TEST_CASE("attention over a latent cache reads v from inside k, gives the bits of separate rows, and counts k once") {
  for (const DType type : kTypes) {
    const KvLayout latent{type, 1, 40, 32, true};
    const KvLayout separate{type, 1, 40, 32, false};
    KvCache one(latent, 70), two(separate, 70);
    const std::vector<float> rows = numbers(70 * 40, 63);
    for (std::uint32_t slot = 0; slot < 70; ++slot) {
      const auto k = std::span(rows).subspan(slot * std::size_t{40}, 40);
      one.store(HeadId(0), SlotId(slot), k, k.first(32));
      two.store(HeadId(0), SlotId(slot), k, k.first(32));
    }
    const std::vector<float> q = numbers(70 * 5 * 40, 64);
    on_every_back_end([&](Ops& ops) {
      const auto run = [&](const KvCache& cache, std::vector<float>& decoded, std::vector<float>& prompt) {
        LayerPolicy policy({"full", {}, false, {}}, PolicyContext{}, 5, 1);
        ops.counters() = {};
        const PrefillCall prefill{q.data(), 5 * 40, cache.keys(HeadId(0), 69), cache.values(HeadId(0), 69),
                                  prompt.data(), 5 * 32, &policy, HeadId(0), 0};
        ops.prefill_attend(std::span(&prefill, 1), {});
        const std::uint64_t of_prompt = ops.counters()[Cause::kKvRead];
        policy.finish_row(TokenPos(68));
        policy.admit(HeadId(0), TokenPos(69));
        const AttendCall call{std::span(q).first(5 * 40), cache.keys(HeadId(0), 70), cache.values(HeadId(0), 70),
                              decoded, TokenPos(69), &policy, HeadId(0), 0};
        ops.attend(std::span(&call, 1), {});
        return std::pair(of_prompt, ops.counters()[Cause::kKvRead] - of_prompt);
      };
      std::vector<float> decoded_one = poisoned(5 * 32), decoded_two = poisoned(5 * 32);
      std::vector<float> prompt_one = poisoned(69 * 5 * 32), prompt_two = poisoned(69 * 5 * 32);
      const auto [prompt_bytes, bytes] = run(one, decoded_one, prompt_one);
      const auto [prompt_bytes_two, bytes_two] = run(two, decoded_two, prompt_two);
      CHECK(same_bits(decoded_one, decoded_two));
      CHECK(same_bits(prompt_one, prompt_two));
      CHECK(bytes == 70 * 40 * size_of(type));
      CHECK(bytes_two == 70 * 72 * size_of(type));
      CHECK(prompt_bytes * 72 == prompt_bytes_two * 40);
    });
  }
}
