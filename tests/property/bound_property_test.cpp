// The bound of the output error by the lost attention, for every policy of the table.
#include <algorithm>
#include <cmath>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_laws.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

double norm(std::span<const double> x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// ‖o‖ of full attention, and the largest ‖v‖ of the tokens up to the query.
struct Exact {
  double output = 0, largest = 0;
};
Exact exact(const Qkv& x, std::uint32_t layer, std::uint32_t head, std::uint32_t query) {
  std::vector<double> output(x.d);
  double all = 0, largest = 0;
  for (std::uint32_t j = 0; j <= query; ++j) {
    double dot = 0;
    for (std::uint32_t c = 0; c < x.d; ++c) dot += x.q_row(layer, head, query)[c] * x.k_row(layer, head, j)[c];
    const double weight = std::exp(dot / std::sqrt(x.d));
    all += weight;
    const auto v = x.v_row(layer, head, j);
    for (std::uint32_t c = 0; c < x.d; ++c) output[c] += weight * v[c];
    largest = std::max(largest, norm(std::vector<double>(v.begin(), v.end())));
  }
  return {norm(output) / all, largest};
}

struct Values final : ReplayObserver {
  void quality(const QualityValue& v) override { all.push_back(v); }
  std::vector<QualityValue> all;
};

}  // namespace

TEST_CASE("no policy changes an output by more than 2 (1 − recall) · max ‖v‖, at any step, layer and head") {
  constexpr std::uint32_t kPrompt = 30;
  const std::vector<float> projection(4 * 16, 0.25F);
  for (const double spread : {0.8, 2.0}) {
    Qkv shape;
    shape.layers = 2;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.tokens = 60;
    shape.d = 16;
    const Qkv x = random_qkv(shape, 21, spread);
    const TemporaryFolder folder;
    TraceOptions trace;
    trace.prompt = kPrompt;
    write_trace(folder.path() / "x.kvt", x, trace);
    std::string policies;
    for (const PolicyInfo& info : policy_table()) {
      policies += fmt::format("{}{}{}", policies.empty() ? "" : ",", info.name, info.takes_budget ? ":budget=0.3" : "");
    }
    Values values;
    ReplayOptions options;
    options.observer = &values;
    options.token_kinds = [](const TraceSequence& s) { return std::vector<TokenKind>(s.tokens); };
    options.output_projection = [&](LayerId) -> RowsView {
      return {reinterpret_cast<const std::byte*>(projection.data()), DType::kF32, projection.size(), projection.size(),
              1};
    };
    ThreadPool pool(2);
    const std::vector<PolicySpec> specs = parse_policies(policies);
    replay(TraceReader::open(folder.path() / "x.kvt"), specs, options, pool);
    double most = 0;
    for (const QualityValue& value : values.all) {
      if (!exempt(law::kBound, specs[value.point]).empty()) continue;
      const Exact full = exact(x, value.layer.value, value.query_head, kPrompt + value.step.value - 1);
      const double bound = 2 * (1 - value.quality.recall) * full.largest;
      const double error = value.quality.output_error * full.output;
      CHECK(error <= bound + 1e-5 * full.largest);
      if (bound > 0.01) most = std::max(most, error / bound);
    }
    CHECK(values.all.size() == 30 * 2 * 4 * policy_table().size());
    CHECK(most > 0.3);  // the bound says something
  }
}
