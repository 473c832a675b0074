// The pass over a trace: what the analyses are fed, whatever the number of threads, layers and sequences.
#include <cmath>
#include <cstring>

#include "analysis/analysis.hpp"
#include "analysis/pictures.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

Qkv random_tensors() {
  Qkv shape;
  shape.layers = 3;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.tokens = 60;
  return random_qkv(shape, 7, 1.6);
}

std::vector<const AnalysisInfo*> all() {
  std::vector<const AnalysisInfo*> analyses;
  for (const AnalysisInfo& info : analysis_table()) analyses.push_back(&info);
  return analyses;
}

struct Analysed {
  std::vector<AnalysisResult> results;

  Analysed(const Qkv& x, TraceOptions options, std::vector<const AnalysisInfo*> analyses, unsigned threads = 2,
           AnalyzeOptions analyze_options = {}) {
    const TemporaryFolder folder;
    write_trace(folder.path() / "x.kvt", x, options);
    if (analyze_options.points.empty()) analyze_options.points = parse_policies("full,window:budget=9,h2o:budget=9");
    ThreadPool pool(threads);
    results = analyze(TraceReader::open(folder.path() / "x.kvt"), analyses, analyze_options, pool);
  }

  [[nodiscard]] const AnalysisResult& of(std::string_view name) const {
    for (const AnalysisResult& result : results) {
      if (result.info().name == name) return result;
    }
    throw std::logic_error("no such result");
  }
};

TraceOptions prompt_of(std::uint32_t prompt) {
  TraceOptions options;
  options.prompt = prompt;
  return options;
}

// All numbers of a result, NaN as such.
std::vector<double> numbers(const AnalysisResult& result) {
  std::vector<double> all;
  for (std::uint32_t layer = result.first_layer(); layer < result.first_layer() + result.layers(); ++layer) {
    for (std::size_t m = 0; m < result.info().measures.size(); ++m) {
      for (std::uint32_t head = 0; head < result.heads(); ++head) all.push_back(result.at(m, layer, head));
    }
    std::size_t line = 0;
    for (const ChartInfo& chart : result.info().charts) {
      for (std::size_t i = 0; i < chart.lines.size(); ++i) {
        const std::vector<double> y = result.line_of_layer(line++, layer);
        all.insert(all.end(), y.begin(), y.end());
      }
    }
  }
  return all;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// Softmax of one query head at one position, in double.
std::vector<double> softmax_of(const Qkv& x, std::uint32_t layer, std::uint32_t head, std::uint32_t query,
                               std::uint32_t window = 0) {
  std::vector<double> weights;
  double sum = 0;
  for (std::uint32_t j = window > 0 && query >= window ? query + 1 - window : 0; j <= query; ++j) {
    double dot = 0;
    for (std::uint32_t c = 0; c < x.d; ++c) {
      dot += static_cast<double>(x.q_row(layer, head, query)[c]) * static_cast<double>(x.k_row(layer, head, j)[c]);
    }
    weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(x.d))));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

double mean_entropy(const Qkv& x, std::uint32_t layer, std::uint32_t head, std::uint32_t prompt, std::uint32_t window) {
  double sum = 0;
  for (std::uint32_t query = prompt; query < x.tokens; ++query) {
    for (const double a : softmax_of(x, layer, head, query, window)) sum -= a * std::log(a) / (x.tokens - prompt);
  }
  return sum;
}

}  // namespace

TEST_CASE("Analyses see the softmax of every decode step of every head, and no hidden token") {
  const Qkv x = random_tensors();
  const std::uint32_t window = GENERATE(0U, 12U);
  TraceOptions options = prompt_of(25);
  options.edit_layer = [&](TraceLayer& layer) { layer.window = window; };
  const Analysed analysed(x, options, {&find_analysis("entropy")});
  for (std::uint32_t layer = 0; layer < x.layers; ++layer) {
    for (std::uint32_t head = 0; head < x.heads; ++head) {
      CHECK(analysed.results[0].at(2, layer, head) == Approx(mean_entropy(x, layer, head, 25, window)).epsilon(1e-4));
    }
  }
}

TEST_CASE("Analyses give the same bits for any number of threads, alone or together") {
  const Qkv x = random_tensors();
  const Analysed one(x, prompt_of(25), all(), 1);
  const Analysed three(x, prompt_of(25), all(), 3);
  for (std::size_t i = 0; i < one.results.size(); ++i) {
    INFO(one.results[i].info().name);
    CHECK(same_bits(numbers(one.results[i]), numbers(three.results[i])));
    const Analysed alone(x, prompt_of(25), {&one.results[i].info()}, 2);
    CHECK(same_bits(numbers(one.results[i]), numbers(alone.results[0])));
    CHECK(!one.results[i].finding().empty());
  }
}

TEST_CASE("Two sequences alike give what one gives, and --layers the layers asked for") {
  const Qkv x = random_tensors();
  const Analysed one(x, prompt_of(25), all());
  TraceOptions two = prompt_of(25);
  two.sequences = 2;
  AnalyzeOptions options;
  options.first_layer = 1;
  options.last_layer = 9;  // clipped
  const Analysed part(x, two, all(), 2, options);
  for (std::size_t i = 0; i < one.results.size(); ++i) {
    const AnalysisResult& result = part.results[i];
    INFO(result.info().name);
    REQUIRE(result.first_layer() == 1);
    REQUIRE(result.layers() == 2);
    // Random draws differ between sequences: of these measures, in positions alone.
    for (std::size_t m = 0; m < result.info().measures.size(); ++m) {
      if (result.info().measures[m].key.ends_with(".position")) continue;
      for (std::uint32_t head = 0; head < x.heads; ++head) {
        const double expected = one.results[i].at(m, 2, head);
        if (!std::isnan(expected)) CHECK(result.at(m, 2, head) == Approx(expected));
      }
    }
  }
}

TEST_CASE("A sequence that decoded nothing has no value of decode steps, and the means are the others'") {
  const Qkv x = random_tensors();
  TraceOptions two = prompt_of(25);
  two.sequences = 2;
  two.last_prompt = x.tokens;
  const std::vector<const AnalysisInfo*> reuse = {&find_analysis("reuse")};
  const Analysed one(x, prompt_of(25), reuse), both(x, two, reuse);
  for (const char* measure : {"prompt_used", "prompt_used_after_half"}) {
    CHECK(both.of("reuse").mean(measure) > 0);
    CHECK(both.of("reuse").mean(measure) == Approx(one.of("reuse").mean(measure)));
  }
}

TEST_CASE("A recorded v that is NaN is refused by the analysis of outputs, and no matter to those of attention") {
  Qkv x = random_tensors();
  x.v[(std::size_t{3} * x.tokens + 4) * x.d] = std::nanf("");
  const auto why = ContainsSubstring("v holds NaN or infinity");
  CHECK_THROWS_WITH(Analysed(x, prompt_of(25), {&find_analysis("bound")}), why);
  CHECK(Analysed(x, prompt_of(25), {&find_analysis("mass")}).of("mass").mean("share_for_90") > 0);
}

TEST_CASE("The measured output error of a window never exceeds its bound") {
  for (const double spread : {0.3, 1.0, 3.0}) {
    const Analysed analysed(random_qkv(random_tensors(), 11, spread), prompt_of(16), {&find_analysis("bound")});
    const AnalysisResult& result = analysed.results[0];
    for (std::uint32_t layer = 0; layer < result.layers(); ++layer) {
      for (std::uint32_t head = 0; head < result.heads(); ++head) {
        CHECK(result.at(3, layer, head) <= 1);
        CHECK(result.at(3, layer, head) > 0.05);  // and it is not far away from it
      }
    }
  }
}

TEST_CASE("The window of the bound is the window policy of replay") {
  const Qkv x = random_tensors();
  AnalyzeOptions options;
  options.points = parse_policies("window:budget=0.5");
  TraceOptions traced = prompt_of(24);
  const bool sinks = GENERATE(false, true);
  traced.edit_layer = [sinks](TraceLayer& layer) {
    if (sinks) layer.attention_sinks = {-2, 1, 4, 30};
  };
  const Analysed analysed(x, traced, {&find_analysis("bound"), &find_analysis("policy")}, 2, options);
  const AnalysisResult& bound = analysed.of("bound");
  const AnalysisResult& policy = analysed.of("policy");
  CHECK(bound.mean("lost_attention") == Approx(1 - policy.mean("window:budget=0.5.recall")));
  CHECK(bound.mean("output_error") == Approx(policy.mean("window:budget=0.5.output_error")).epsilon(1e-4));
}

TEST_CASE("Policies by head add up to what replay says of them, and full attention loses nothing") {
  const Qkv x = random_tensors();
  const TemporaryFolder folder;
  write_trace(folder.path() / "x.kvt", x, prompt_of(25));
  ThreadPool pool(2);
  const auto replayed =
      replay(TraceReader::open(folder.path() / "x.kvt"), parse_policies("h2o:budget=9,oracle:budget=9"), {}, pool);
  const Analysed analysed(x, prompt_of(25), {&find_analysis("policy")});
  const AnalysisResult& result = analysed.results[0];
  CHECK(result.mean("h2o:budget=9.recall") == Approx(replayed[0].quality->recall_mean));
  CHECK(result.mean("h2o:budget=9.output_error") == Approx(*replayed[0].quality->output_error));
  CHECK(result.mean("h2o:budget=9.oracle_gap") ==
        Approx(replayed[1].quality->recall_mean - replayed[0].quality->recall_mean));
  CHECK(result.mean("full.recall") == 1);
  CHECK(result.mean("full.oracle_gap") == 0);
  CHECK(result.mean("h2o:budget=9.attended") == 10);  // and the query's own
}

TEST_CASE("A policy's position is the share of the way from random to oracle, head by head") {
  AnalyzeOptions options;
  options.points = parse_policies("h2o:budget=9,random:budget=9,oracle:budget=9,full");
  const Analysed analysed(random_tensors(), prompt_of(25), {&find_analysis("policy")}, 2, options);
  const AnalysisResult& all = analysed.results[0];
  AnalyzeOptions alone;
  alone.points = parse_policies("h2o:budget=9");
  const Analysed one(random_tensors(), prompt_of(25), {&find_analysis("policy")}, 2, alone);
  constexpr std::size_t kRecall = 0, kPosition = 4, kPoint = 6;
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    const double low = all.at(kPoint + kRecall, layer, 1);
    const double high = all.at(2 * kPoint + kRecall, layer, 1);
    CHECK(all.at(kPosition, layer, 1) == Approx((all.at(kRecall, layer, 1) - low) / (high - low)));
    CHECK(one.results[0].at(kPosition, layer, 1) == all.at(kPosition, layer, 1));
    CHECK(all.at(kPoint + kPosition, layer, 1) == 0);
    CHECK(all.at(2 * kPoint + kPosition, layer, 1) == 1);
    CHECK(std::isnan(all.at(3 * kPoint + kPosition, layer, 1)));
  }
}

TEST_CASE("A policy without a budget lies between random and oracle with as many tokens as it reads") {
  AnalyzeOptions options;
  options.points = parse_policies("h2o-masked:heavy=0:recent=10");  // 9 beside the query's own
  const Analysed masked(random_tensors(), prompt_of(25), {&find_analysis("policy")}, 2, options);
  AnalyzeOptions bounds;
  bounds.points = parse_policies("random:budget=9,oracle:budget=9");
  const Analysed both(random_tensors(), prompt_of(25), {&find_analysis("policy")}, 2, bounds);
  constexpr std::size_t kRecall = 0, kGap = 3, kPosition = 4, kAttended = 5, kPoint = 6;
  const double own = masked.results[0].at(kRecall, 1, 2);
  const double low = both.results[0].at(kRecall, 1, 2), high = both.results[0].at(kPoint + kRecall, 1, 2);
  CHECK(masked.results[0].at(kGap, 1, 2) == Approx(high - own));
  CHECK(masked.results[0].at(kAttended, 1, 2) == 10);
  CHECK(masked.results[0].at(kPosition, 1, 2) == Approx((own - low) / (high - low)));
}

TEST_CASE("Attention on kept tokens grows by what was lost: 1/R − 1") {
  const Qkv x = random_tensors();
  const TemporaryFolder folder;
  write_trace(folder.path() / "x.kvt", x, prompt_of(30));
  struct Recalls final : ReplayObserver {
    void quality(const QualityValue& v) override {
      if (v.layer.value == 1 && v.query_head == 3) changes.push_back(1 / v.quality.recall - 1);
    }
    std::vector<double> changes;
  } seen;
  ReplayOptions options;
  options.observer = &seen;
  ThreadPool pool(1);
  replay(TraceReader::open(folder.path() / "x.kvt"), parse_policies("scissorhands:budget=0.333"), options, pool);
  std::sort(seen.changes.begin(), seen.changes.end());
  const Analysed analysed(x, prompt_of(30), {&find_analysis("change-ratio")});
  REQUIRE(seen.changes.size() == 30);
  // Of 30 steps the median is the mean of the two in the middle; nine tenths of the 29 between first and last are 26.1.
  CHECK(analysed.results[0].at(0, 1, 3) == Approx((seen.changes[14] + seen.changes[15]) / 2));
  CHECK(analysed.results[0].at(1, 1, 3) == Approx(0.9 * seen.changes[26] + 0.1 * seen.changes[27]));
  CHECK(seen.changes[14] > 0);
  CHECK(seen.changes[15] > seen.changes[14]);
  CHECK(seen.changes[27] > seen.changes[26]);
}

TEST_CASE("A trace without decoded tokens, or without the layers, is refused in a sentence") {
  const Qkv x = random_tensors();
  CHECK_THROWS_WITH(Analysed(x, prompt_of(60), all()), ContainsSubstring("no token was decoded"));
  AnalyzeOptions options;
  options.first_layer = 3;
  CHECK_THROWS_WITH(Analysed(x, prompt_of(30), all(), 1, options), ContainsSubstring("layers 0..2"));
}

TEST_CASE("Every result has pictures with titles and units, and the page holds them all") {
  const Analysed analysed(random_tensors(), prompt_of(25), all());
  const std::string page = html_page("a < b", analysed.results);
  CHECK_THAT(page, ContainsSubstring("a &lt; b"));
  CHECK(page.find("http-equiv") == std::string::npos);
  CHECK(page.find(" src=") == std::string::npos);
  for (const AnalysisResult& result : analysed.results) {
    const auto pictures = pictures_of(result);
    CHECK(pictures.size() >= 1 + result.info().charts.size());
    for (const Picture& picture : pictures) {
      INFO(picture.name);
      CHECK_THAT(page, ContainsSubstring(picture.svg));
      CHECK_THAT(picture.svg, ContainsSubstring("class=\"title\""));
      CHECK(picture.svg.find("nan") == std::string::npos);
      CHECK(picture.svg.find("inf") == std::string::npos);
      CHECK(picture.svg.ends_with("</svg>\n"));
    }
  }
}
