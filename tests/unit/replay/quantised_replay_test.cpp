#include <cmath>

#include "sim/core/kv_quantizer.hpp"
#include "sim/replay/cache_view.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kTokens = 300, kPrompt = 200, kWidth = 32;

struct Values final : ReplayObserver {
  void quality(const QualityValue& v) override {
    values.push_back(v.quality);
    steps.push_back(v.step.value);
  }
  std::vector<HeadQuality> values;
  std::vector<std::uint32_t> steps;
};

// k and v of one head that a query at `position` meets in a cache of the type, written out from the definition.
void cached(KvType type, std::uint32_t position, std::vector<float>& k, std::vector<float>& v) {
  const auto row = [&](std::vector<float>& of, std::uint32_t t) { return std::span(of).subspan(t * kWidth, kWidth); };
  for (std::uint32_t t = 0; t <= position; ++t) {
    round_trip_row(type, row(k, t));
    round_trip_row(type, row(v, t));
    if (type.by_age() && t + 128 < position) round_trip_aged_value(type, row(v, t));
  }
  for (std::uint32_t first = 0; type.by_age() && first < position / 128 * 128; first += 32) {
    round_trip_aged_keys(type, std::span(k).subspan(first * kWidth, 32 * kWidth), kWidth);
  }
}

std::vector<double> output(std::span<const float> q, const std::vector<float>& k, const std::vector<float>& v,
                           std::uint32_t tokens, float sink) {
  std::vector<double> out(kWidth), weights(tokens);
  double sum = std::exp(static_cast<double>(sink));
  for (std::uint32_t t = 0; t < tokens; ++t) {
    double dot = 0;
    for (std::uint32_t c = 0; c < kWidth; ++c) {
      dot += static_cast<double>(q[c]) * static_cast<double>(k[t * kWidth + c]);
    }
    sum += weights[t] = std::exp(dot / std::sqrt(static_cast<double>(kWidth)));
  }
  for (std::uint32_t t = 0; t < tokens; ++t) {
    for (std::uint32_t c = 0; c < kWidth; ++c) out[c] += weights[t] / sum * static_cast<double>(v[t * kWidth + c]);
  }
  return out;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double a : x) sum += a * a;
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("output error under a quantised cache is that of attention over what the cache gives back at that age") {
  Qkv shape;
  shape.heads = shape.kv_heads = 1;
  shape.tokens = kTokens;
  shape.d = kWidth;
  const Qkv x = random_qkv(shape, 5);
  const TemporaryFolder folder;
  TraceOptions traced;
  traced.prompt = kPrompt;
  const float sink = GENERATE(-1e4F, 1.5F);  // none to speak of, and one that takes its part
  traced.edit_layer = [sink](TraceLayer& layer) { layer.attention_sinks = {sink}; };
  write_trace(folder.path() / "x.kvt", x, traced);
  const TraceReader trace = TraceReader::open(folder.path() / "x.kvt");
  ThreadPool pool(1);
  for (const auto kind : {KvType::kInt8, KvType::kInt4, KvType::kInt4G64, KvType::kKivi2, KvType::kKivi4}) {
    INFO(name_of(kind));
    Values seen;
    ReplayOptions options;
    options.observer = &seen;
    PolicySpec full = parse_policies("full").front();
    full.kv = kind;
    replay(trace, std::span(&full, 1), options, pool);
    REQUIRE(seen.values.size() == kTokens - kPrompt);
    for (const std::uint32_t position : {kPrompt, 255U, 256U, kTokens - 1}) {
      std::vector<float> k(x.k.begin(), x.k.end()), v(x.v.begin(), x.v.end());
      std::vector<float> q(x.q.begin() + position * kWidth, x.q.begin() + (position + 1) * kWidth);
      const std::vector<double> exact = output(q, k, v, position + 1, sink);
      cached(kind, position, k, v);
      for (float& e : q) e = round_to(KvType(kind).rows(), e);
      std::vector<double> difference = output(q, k, v, position + 1, sink);
      for (std::uint32_t c = 0; c < kWidth; ++c) difference[c] -= exact[c];
      const HeadQuality& found = seen.values[position - kPrompt];
      CHECK(found.recall == 1);
      CHECK(found.output_error == Approx(norm(difference) / norm(exact)).epsilon(1e-3));
      CHECK(found.output_error > 0);
    }
  }
}

TEST_CASE("rows of a residual window are counted by age, and holes in groups of keys with them") {
  std::vector<TokenPos> held;
  for (const std::uint32_t t : {0U, 33U, 34U, 127U, 130U, 200U}) held.emplace_back(t);
  // 201 cached: k of tokens below 128 is in groups 0, 1 and 3; v of those below 73 is quantised.
  CHECK(aged_rows({held, 201}) == AgedRows{2, 3, 3 * 32, 3});
  // Nothing has left a window of 128 tokens.
  CHECK(aged_rows({std::span(held).first(3), 127}) == AgedRows{3, 3, 0, 0});
  // The 256th token sends k of 128 … 255 away, and v of token 127.
  CHECK(aged_by_last({held, 256}) == AgedRows{2, 1, 2 * 32, 1});
  CHECK(aged_by_last({held, 255}) == AgedRows{});
}
