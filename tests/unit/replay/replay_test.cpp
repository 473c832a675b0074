#include "sim/replay/replay.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

// Everything that a replay shows: kept sets by (point, sequence, step, layer, head), quality by query head.
class Everything final : public ReplayObserver {
 public:
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& s) override {
    sets[{s.point, s.sequence, s.step.value, s.layer.value, s.head}].assign(s.positions.begin(), s.positions.end());
  }
  void quality(const QualityValue& v) override {
    values[{v.point, v.sequence, v.step.value, v.layer.value, v.query_head}] = v.quality;
  }
  std::map<Key, std::vector<TokenPos>> sets;
  std::map<Key, HeadQuality> values;
};

struct Replayed {
  std::vector<PointResult> results;
  Everything seen;
};

Replayed replay_qkv(const Qkv& x, const TraceOptions& options, const std::string& policies) {
  const TemporaryFolder folder;
  write_trace(folder.path() / "x.kvt", x, options);
  const TraceReader trace = TraceReader::open(folder.path() / "x.kvt");
  ThreadPool pool(2);
  Replayed out;
  ReplayOptions replay_options;
  replay_options.observer = &out.seen;
  out.results = replay(trace, parse_policies(policies), replay_options, pool);
  return out;
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Exact attention weights of a query's tokens in double, with everything that a layer may ask for, and behind them that
// of its sink, beside tokens whose weights sum to 1.
std::vector<double> exact_weights(const Qkv& x, const TraceLayer& layer, std::uint32_t l, std::uint32_t head,
                                  std::uint32_t query) {
  std::vector<double> w(query + 1);
  double largest = -1e300;
  for (std::uint32_t j = 0; j <= query; ++j) {
    double logit = static_cast<double>(layer.scale) * dot(x.q_row(l, head, query), x.k_row(l, head, j));
    if (layer.softcap > 0) logit = layer.softcap * std::tanh(logit / layer.softcap);
    if (!layer.alibi_slopes.empty()) logit -= static_cast<double>(layer.alibi_slopes[head]) * (query - j);
    if (layer.window > 0 && query - j >= layer.window) logit = -1e300;
    w[j] = logit;
    largest = std::max(largest, logit);
  }
  double sum = 0;
  for (double& value : w) sum += value = value <= -1e299 ? 0 : std::exp(value - largest);
  w.push_back(layer.attention_sinks.empty() ? 0 : std::exp(static_cast<double>(layer.attention_sinks[head]) - largest));
  for (double& value : w) value /= sum;
  return w;
}

// Recall and output error of reading `attended`, in double.
HeadQuality exact_quality(const Qkv& x, const TraceLayer& layer, std::uint32_t l, std::uint32_t head,
                          std::uint32_t query, const std::vector<TokenPos>& attended) {
  const std::vector<double> w = exact_weights(x, layer, l, head, query);
  HeadQuality quality{0, 0};
  for (const TokenPos t : attended) quality.recall += w[t.value];
  double difference = 0;
  double norm = 0;
  for (std::uint32_t c = 0; c < x.d; ++c) {
    double full = 0;
    double kept = 0;
    for (std::uint32_t j = 0; j <= query; ++j) {
      full += w[j] / (1 + w.back()) * static_cast<double>(x.v_row(l, head, j)[c]);
    }
    for (const TokenPos t : attended) {
      kept += w[t.value] / (quality.recall + w.back()) * static_cast<double>(x.v_row(l, head, t.value)[c]);
    }
    difference += (full - kept) * (full - kept);
    norm += full * full;
  }
  quality.output_error = std::sqrt(difference / norm);
  return quality;
}

// Compares each value with a computation in double from the kept sets alone; `selects`: from what each query head read.
void check_quality(const Qkv& x, const TraceOptions& options, const std::string& policy, bool selects = false) {
  CAPTURE(policy);
  const TraceManifest manifest = manifest_of(x, options);
  const Replayed run = replay_qkv(x, options, policy);
  const std::uint32_t storage = run.results[0].residency[0].head().storage_heads;
  double worst_recall = 0;
  double worst_error = 0;
  for (const auto& [key, value] : run.seen.values) {
    const auto [point, sequence, step, layer, head] = key;
    auto attended = run.seen.sets.at({point, sequence, selects ? step : step - 1, layer,
                                      selects ? head : head / (x.heads / storage)});
    if (!selects) attended.emplace_back(options.prompt + step - 1);
    const HeadQuality exact =
        exact_quality(x, manifest.layers[layer], layer, head, options.prompt + step - 1, attended);
    worst_recall = std::max(worst_recall, std::abs(exact.recall - value.recall));
    worst_error = std::max(worst_error, std::abs(exact.output_error - value.output_error));
  }
  CHECK(run.seen.values.size() == std::size_t{x.layers} * x.heads * (x.tokens - options.prompt));
  CHECK(worst_recall < 1e-5);
  CHECK(worst_error < 1e-4);
}

Qkv grouped(DType type = DType::kF32) {
  Qkv shape;
  shape.layers = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.tokens = 90;
  shape.d = 24;
  shape.type = type;
  return random_qkv(shape, 11, 1.5);
}

TraceOptions prompt_of(std::uint32_t prompt) {
  TraceOptions options;
  options.prompt = prompt;
  return options;
}

}  // namespace

TEST_CASE("a replay says which rows a policy looks at: all of the prompt's, and those of decoded tokens") {
  const auto looks_at = [](const std::string& policy) {
    const Residency head = replay_qkv(grouped(), prompt_of(40), policy).results[0].residency[0].head();
    return std::pair(head.needs_probabilities, head.observes_steps);
  };
  CHECK(looks_at("h2o:budget=16") == std::pair(true, true));
  CHECK(looks_at("h2o:budget=16:when=prefill") == std::pair(true, false));
  CHECK(looks_at("observed-attention:budget=16") == std::pair(true, false));
  CHECK(looks_at("tova:budget=16") == std::pair(false, true));
  CHECK(looks_at("snapkv:budget=16:window=4") == std::pair(false, false));
  CHECK(looks_at("window:budget=16") == std::pair(false, false));
  CHECK(looks_at("oracle:budget=16") == std::pair(false, false));
}

TEST_CASE("full attention has recall 1 and output error 0, and keeps every token") {
  const Qkv x = grouped();
  const Replayed run = replay_qkv(x, prompt_of(40), "full");
  REQUIRE(run.results[0].quality);
  CHECK(run.results[0].quality->recall_mean == 1);
  CHECK(run.results[0].quality->recall_worst1 == 1);
  CHECK(run.results[0].quality->output_error == 0.0);
  for (const auto& [key, set] : run.seen.sets) CHECK(set.size() == 40 + std::get<2>(key));
}

TEST_CASE("recall and output error equal a computation in double from the kept sets") {
  for (const char* policy : {"window:budget=16", "streaming:budget=12", "h2o:budget=0.3", "h2o:budget=0.3:group=none",
                             "keyformer:budget=14", "scissorhands:budget=24", "random:budget=10"}) {
    check_quality(grouped(), prompt_of(40), policy);
  }
}

TEST_CASE("recall and output error hold for half precision, soft-caps, ALiBi and sliding windows") {
  check_quality(grouped(DType::kBF16), prompt_of(40), "h2o:budget=0.3");
  check_quality(grouped(DType::kF16), prompt_of(40), "h2o:budget=0.3");
  TraceOptions options = prompt_of(40);
  options.edit_layer = [](TraceLayer& l) { l.softcap = 2; };
  check_quality(grouped(), options, "h2o:budget=0.3");
  options.edit_layer = [](TraceLayer& l) { l.alibi_slopes = {0.5F, 0.25F, 0.125F, 0.0625F}; };
  check_quality(grouped(), options, "h2o:budget=0.3");
  options.edit_layer = [](TraceLayer& l) { l.window = 20; };
  check_quality(grouped(), options, "h2o:budget=0.3");
}

TEST_CASE("a sink takes its share of what is kept, which makes the output smaller and not the recall") {
  TraceOptions options = prompt_of(40);
  options.edit_layer = [](TraceLayer& l) { l.attention_sinks = {-2.0F, 0.5F, 3.0F, 8.0F}; };
  // By exponentials of rows, and by weights of rows that are selected.
  for (const char* policy : {"window:budget=16", "h2o:budget=0.3", "keyformer:budget=14", "tova:budget=12"}) {
    check_quality(grouped(), options, policy);
  }
  for (const char* policy : {"oracle:budget=10", "quest:budget=16:page=4"}) {
    check_quality(grouped(), options, policy, true);
  }
  options.edit_layer = [](TraceLayer& l) {
    l.attention_sinks = {-2.0F, 0.5F, 3.0F, 8.0F};
    l.window = 20;
  };
  check_quality(grouped(), options, "h2o:budget=0.3");
}

TEST_CASE("output error is right where the kept tokens have next to none of the attention") {
  Qkv x = grouped();
  // One prompt token takes all attention of every later query; the window loses it.
  for (std::uint32_t l = 0; l < x.layers; ++l) {
    for (std::uint32_t h = 0; h < x.heads; ++h) {
      for (std::uint32_t t = 0; t < x.tokens; ++t) x.q[((std::size_t{l} * x.heads + h) * x.tokens + t) * x.d] = 30;
    }
    for (std::uint32_t h = 0; h < x.kv_heads; ++h) x.k[((std::size_t{l} * x.kv_heads + h) * x.tokens + 3) * x.d] = 60;
  }
  const Replayed run = replay_qkv(x, prompt_of(40), "window:budget=16");
  for (const auto& [key, value] : run.seen.values) {
    CHECK(value.recall < 1e-30);
    CHECK(std::isfinite(value.output_error));
    CHECK(value.output_error > 0.1);
  }
}

TEST_CASE("what is resident after a step is what was before, plus written, minus freed, counts follow the sets") {
  const Qkv x = grouped();
  const std::string policies =
      "full,window:budget=16,h2o:budget=0.3,h2o:budget=0.3:group=none,keyformer:budget=0.2@current,"
      "scissorhands:budget=24,scissorhands:budget=24:prompt=stream,random:budget=10,streaming:budget=8";
  const Replayed run = replay_qkv(x, prompt_of(40), policies);
  for (std::uint32_t p = 0; p < run.results.size(); ++p) {
    CAPTURE(run.results[p].spec.text());
    const Residency r = run.results[p].residency[0].expand();
    REQUIRE(r.steps == 50);
    for (std::uint32_t layer = 0; layer < r.layers; ++layer) {
      std::uint64_t before = 0;
      for (std::uint32_t step = 0; step <= r.steps; ++step) {
        const LayerCounts& c = r.at(step, layer);
        std::uint64_t held = 0;
        std::uint64_t freed = 0;
        for (std::uint32_t head = 0; head < r.storage_heads; ++head) {
          const auto& set = run.seen.sets.at({p, 0, step, layer, head});
          held += set.size();
          // Tokens that the step before held, and the new one, are either held or freed; nothing else appears.
          std::vector<TokenPos> could;
          if (step == 0) {
            for (std::uint32_t t = 0; t < 40; ++t) could.emplace_back(t);
          } else {
            could = run.seen.sets.at({p, 0, step - 1, layer, head});
            could.emplace_back(40 + step - 1);
          }
          CHECK(std::includes(could.begin(), could.end(), set.begin(), set.end()));
          freed += could.size() - set.size();
        }
        const std::uint64_t written = std::uint64_t{r.storage_heads} * (step == 0 ? 40 : 1);
        CHECK(c.written == written);
        CHECK(c.resident == held);
        CHECK(c.resident == before + c.written - freed);
        if (step > 0) CHECK(c.attended == before + r.storage_heads);
        before = c.resident;
      }
    }
  }
}

TEST_CASE("a prompt that is all of the trace has sets and bytes but no quality") {
  Qkv x = grouped();
  const Replayed run = replay_qkv(x, prompt_of(90), "full,h2o:budget=0.2");
  CHECK_FALSE(run.results[0].quality);
  CHECK(run.results[1].residency[0].expand().at(0, 1).resident == 2 * 18);
  CHECK(run.seen.sets.at({1, 0, 0, 1, 1}).size() == 18);
}

TEST_CASE("every sequence is replayed from a fresh state") {
  const Qkv x = grouped();
  TraceOptions options = prompt_of(40);
  options.sequences = 2;
  const Replayed run = replay_qkv(x, options, "h2o:budget=0.3,keyformer:budget=0.3:noise=none");
  for (const auto& [key, set] : run.seen.sets) {
    const auto [point, sequence, step, layer, head] = key;
    if (sequence == 0) CHECK(run.seen.sets.at({point, 1, step, layer, head}) == set);
  }
}

TEST_CASE("measuring quality or not changes no decision") {
  const Qkv x = grouped();
  const TemporaryFolder folder;
  TraceOptions traced = prompt_of(40);
  const bool sinks = GENERATE(false, true);
  traced.edit_layer = [sinks](TraceLayer& l) {
    if (sinks) l.attention_sinks = {-2.0F, 0.5F, 3.0F, 8.0F};
  };
  write_trace(folder.path() / "x.kvt", x, traced);
  const TraceReader trace = TraceReader::open(folder.path() / "x.kvt");
  ThreadPool pool(1);
  const auto points = parse_policies("full,h2o:budget=0.3,random:budget=9");
  std::vector<std::map<Key, std::vector<TokenPos>>> sets;
  for (const MeasureOptions measure :
       {MeasureOptions{true, true}, MeasureOptions{true, false}, MeasureOptions{false, false}}) {
    Everything seen;
    const auto results = replay(trace, points, {0, measure, &seen}, pool);
    CHECK(results[1].quality.has_value() == measure.recall);
    sets.push_back(seen.sets);
  }
  CHECK(sets[0] == sets[1]);
  CHECK(sets[0] == sets[2]);
}

// Each of the points keeps and counts beside the others what it does by itself.
void check_sweep(const Qkv& x, const TraceOptions& options, const std::vector<std::string>& points) {
  std::string all;
  for (const std::string& point : points) all += (all.empty() ? "" : ",") + point;
  const Replayed together = replay_qkv(x, options, all);
  for (std::uint32_t p = 0; p < points.size(); ++p) {
    INFO(points[p]);
    const Replayed alone = replay_qkv(x, options, points[p]);
    REQUIRE(!alone.seen.sets.empty());
    for (const auto& [key, set] : alone.seen.sets) {
      const auto [point, sequence, step, layer, head] = key;
      REQUIRE(together.seen.sets.at({p, sequence, step, layer, head}) == set);
    }
    const Residency ours = together.results[p].residency[0].expand(), own = alone.results[0].residency[0].expand();
    REQUIRE(ours.cells == own.cells);
  }
}

TEST_CASE("points of a sweep keep and count what each does by itself, though one looks at the prompt for all") {
  const Qkv x = grouped();
  const std::vector<std::string> points = {
      "h2o:budget=0.3", "h2o:budget=12", "h2o:budget=0.3:recent=0.9", "h2o:budget=1.0", "a2sf:budget=12",
      "a2sf:budget=0.5", "keyformer:budget=12", "keyformer:budget=0.5", "keyformer:budget=0.5:noise=query",
      "h2o:budget=12:group=none"};
  check_sweep(x, prompt_of(40), points);
}

TEST_CASE("points whose rows have the same noise share them and keep what each keeps by itself, with windows, ALiBi "
          "and soft-caps, whatever is drawn") {
  TraceOptions options = prompt_of(40);
  SECTION("plain") {}
  SECTION("window") {
    options.edit_layer = [](TraceLayer& l) { l.window = 30; };
  }
  SECTION("bias and cap") {
    options.edit_layer = [](TraceLayer& l) {
      l.alibi_slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
      l.softcap = 3;
    };
  }
  SECTION("sinks") {
    options.edit_layer = [](TraceLayer& l) { l.attention_sinks = {-2.0F, 0.5F, 3.0F, 8.0F}; };
  }
  SECTION("logits too far apart to share exponentials") {
    options.edit_layer = [](TraceLayer& l) { l.scale *= 400; };
  }
  check_sweep(grouped(), options,
              {"keyformer:budget=12", "keyformer:budget=0.5:damping=0.9", "keyformer:budget=9:group=none",
               "keyformer:budget=12:noise=query", "keyformer:budget=0.5:noise=query:group=max",
               "keyformer:budget=12:draw=gaussian", "keyformer:budget=0.5:draw=gaussian:score=layer",
               "keyformer:budget=12:noise=none:tau=1..3", "keyformer:budget=0.5:noise=none:tau=1..3",
               // More kinds than are shared, and one that a single point has.
               "keyformer:budget=12:tau=1", "keyformer:budget=0.5:tau=1", "keyformer:budget=12:tau=3"});
}

TEST_CASE("layers with unlike heads are refused by name") {
  const Qkv x = grouped();
  TraceOptions options = prompt_of(40);
  int calls = 0;
  options.edit_layer = [&](TraceLayer& l) { l.kv_heads = calls++ == 0 ? 2 : 4; };
  Qkv wide = x;
  wide.layers = 1;
  const TemporaryFolder folder;
  TraceManifest manifest = manifest_of(x, options);
  TraceWriter writer(folder.path() / "x.kvt", manifest);
  const std::vector<std::byte> q(std::size_t{90} * 4 * 24 * 4), half(std::size_t{90} * 2 * 24 * 4);
  writer.add_rows(0, LayerId(0), 0, 90, q, half, half);
  writer.add_rows(0, LayerId(1), 0, 90, q, q, q);
  StepRecord step;
  step.phase = "prefill";
  step.sequences = 1;
  writer.end_step(step);
  writer.seal();
  const TraceReader trace = TraceReader::open(folder.path() / "x.kvt");
  ThreadPool pool(1);
  CHECK_THROWS_WITH(replay(trace, parse_policies("full"), {}, pool),
                    ContainsSubstring("layer 1 has 4 query and 4 KV heads"));
}
