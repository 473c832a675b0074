// streaming:positions=slot against the authors' code (mit-han-lab/streaming-llm 2e50426, StartRecentKVCache and
// llama_pos_shift_attention_forward), whose inputs are q and k before rotary embedding: two query heads of one KV head.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kPrompt = 40, kHeads = 2, kSinks = 4, kBudget = 32;

struct Case {
  Qkv x;                  // q and k turned by their own positions
  std::vector<float> out;  // [heads, decoded tokens, d]: what the authors' code puts out
  std::vector<std::int64_t> query_position;
};

// Half-split rotary embedding of rows [heads, tokens, d], in double.
void turn(std::vector<float>& rows, std::uint32_t tokens, std::uint32_t d) {
  for (std::size_t row = 0; row < rows.size() / d; ++row) {
    for (std::uint32_t i = 0; i < d / 2; ++i) {
      const double angle = static_cast<double>(row % tokens) * std::pow(10000.0, -2.0 * i / d);
      const auto a = static_cast<double>(rows[row * d + i]);
      const auto b = static_cast<double>(rows[row * d + i + d / 2]);
      rows[row * d + i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      rows[row * d + i + d / 2] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
  }
}

Case load() {
  const std::string path = KVROOF_SOURCE_DIR "/tests/golden/policies/positions_streaming_after_s4_r28.safetensors";
  const SafetensorsFile file = SafetensorsFile::open(path).or_throw(path);
  const auto floats = [&](const char* name) { return file.read_floats(*file.header().find(name)); };
  Case c;
  c.x.heads = kHeads;
  c.x.kv_heads = 1;
  c.x.tokens = 70;
  c.x.d = 16;
  c.x.q = floats("q");
  c.x.k = floats("k");
  c.x.v = floats("v");
  c.out = floats("attn_out");
  c.query_position = file.read_integers(*file.header().find("query_position"));
  turn(c.x.q, c.x.tokens, c.x.d);
  turn(c.x.k, c.x.tokens, c.x.d);
  return c;
}

std::vector<double> full_output(const Qkv& x, std::uint32_t head, std::uint32_t query) {
  std::vector<double> out(x.d);
  double sum = 0;
  for (std::uint32_t j = 0; j <= query; ++j) {
    double logit = 0;
    for (std::uint32_t c = 0; c < x.d; ++c) {
      logit += static_cast<double>(x.q_row(0, head, query)[c]) * static_cast<double>(x.k_row(0, head, j)[c]);
    }
    const double weight = std::exp(logit / std::sqrt(static_cast<double>(x.d)));
    sum += weight;
    for (std::uint32_t c = 0; c < x.d; ++c) out[c] += weight * static_cast<double>(x.v_row(0, head, j)[c]);
  }
  for (double& value : out) value /= sum;
  return out;
}

struct Seen final : ReplayObserver {
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& s) override { held[{s.point, s.step.value}] = s.positions.size(); }
  void quality(const QualityValue& v) override {
    errors[{v.point, v.step.value, v.query_head}] = v.quality.output_error;
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> held;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, double> errors;
};

}  // namespace

TEST_CASE("streaming at slot positions puts out what the authors' code does, and its queries stand where theirs do") {
  const Case c = load();
  TraceOptions options;
  options.prompt = kPrompt;
  options.edit_layer = [](TraceLayer& layer) {
    layer.rotary.style = "half_split";
    layer.rotary.dims = 16;
    layer.rotary.theta = 10000;
  };
  const TemporaryFolder folder;
  write_trace(folder.path() / "x.kvt", c.x, options);
  Seen seen;
  ReplayOptions replay_options;
  replay_options.observer = &seen;
  ThreadPool pool(1);
  const std::string policy = fmt::format("streaming:budget={}:sinks={}:positions=", kBudget, kSinks);
  const auto specs = parse_policies(policy + "slot," + policy + "original");
  (void)replay(TraceReader::open(folder.path() / "x.kvt"), specs, replay_options, pool);
  double apart = 0;
  for (std::uint32_t query = kPrompt; query < c.x.tokens; ++query) {
    const std::uint32_t step = query - kPrompt + 1;
    CHECK(seen.held.at({0, step - 1}) == static_cast<std::size_t>(c.query_position[query]));
    for (std::uint32_t head = 0; head < kHeads; ++head) {
      const std::vector<double> full = full_output(c.x, head, query);
      double difference = 0;
      double norm = 0;
      for (std::uint32_t i = 0; i < c.x.d; ++i) {
        const std::size_t row = std::size_t{head} * (c.x.tokens - kPrompt) + step - 1;
        const auto theirs = static_cast<double>(c.out[row * c.x.d + i]);
        difference += (theirs - full[i]) * (theirs - full[i]);
        norm += full[i] * full[i];
      }
      const double expected = std::sqrt(difference / norm);
      CHECK(seen.errors.at({0, step, head}) == Approx(expected).margin(1e-4));
      apart = std::max(apart, std::fabs(seen.errors.at({1, step, head}) - expected));
    }
  }
  CHECK(apart > 0.01);  // at original positions the outputs are others
}
