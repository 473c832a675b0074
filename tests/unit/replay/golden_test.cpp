// The whole replay, from q, k and v in a trace, against reference sets and metrics computed in double by other
// programs.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

struct GoldenCase {
  nlohmann::json json;
  SafetensorsFile file;
  Qkv x;
  std::uint32_t prompt = 0;

  [[nodiscard]] std::vector<double> doubles(const std::string& name) const {
    const TensorInfo* info = file.header().find(name);
    REQUIRE(info != nullptr);
    std::vector<double> values(info->elements());
    file.read(*info, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
};

GoldenCase golden(const std::string& name) {
  const std::filesystem::path base = std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/policies" / name;
  GoldenCase c{nlohmann::json::parse(std::ifstream(base.string() + ".json")),
               SafetensorsFile::open(base.string() + ".safetensors").or_throw(name),
               {},
               0};
  const auto& q = *c.file.header().find("q");
  const auto& k = *c.file.header().find("k");
  c.x.heads = static_cast<std::uint32_t>(q.shape[0]);
  c.x.kv_heads = static_cast<std::uint32_t>(k.shape[0]);
  c.x.tokens = static_cast<std::uint32_t>(q.shape[1]);
  c.x.d = static_cast<std::uint32_t>(q.shape[2]);
  c.x.q = c.file.read_floats(q);
  c.x.k = c.file.read_floats(k);
  c.x.v = c.file.read_floats(*c.file.header().find("v"));
  c.prompt = c.json["shape"]["prompt"];
  return c;
}

// Kept sets by (step, head), recall and error by (step − 1) · heads + query head.
struct Seen final : ReplayObserver {
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& s) override { sets[{s.step.value, s.head}].assign(s.positions.begin(), s.positions.end()); }
  void quality(const QualityValue& v) override {
    recall.push_back(v.quality.recall);
    error.push_back(v.quality.output_error);
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<TokenPos>> sets;
  std::vector<double> recall, error;
};

Seen replay_case(const GoldenCase& c, const std::string& policy) {
  const TemporaryFolder folder;
  TraceOptions options;
  options.prompt = c.prompt;
  write_trace(folder.path() / "x.kvt", c.x, options);
  ThreadPool pool(2);
  Seen seen;
  ReplayOptions replay_options;
  replay_options.observer = &seen;
  replay(TraceReader::open(folder.path() / "x.kvt"), parse_policies(policy), replay_options, pool);
  return seen;
}

void check_close(const std::vector<double>& ours, const std::vector<double>& reference, double tolerance) {
  REQUIRE(ours.size() == reference.size());
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::abs(ours[i] - reference[i]));
  CHECK(worst < tolerance);
}

// Row `row`, head `head` of positions padded with −1 or of a mask.
std::vector<TokenPos> expected_set(const GoldenCase& c, const std::string& tensor, std::uint32_t row,
                                   std::uint32_t head) {
  const TensorInfo& info = *c.file.header().find(tensor);
  const auto values = c.file.read_integers(info);
  const std::size_t heads = info.shape[1];
  const std::size_t width = info.shape[2];
  std::vector<TokenPos> set;
  for (std::size_t i = 0; i < width; ++i) {
    const std::int64_t value = values[(row * heads + (heads == 1 ? 0 : head)) * width + i];
    const bool mask = tensor.find("mask") != std::string::npos;
    if (mask ? value != 0 : value >= 0) set.emplace_back(static_cast<std::uint32_t>(mask ? i : value));
  }
  return set;
}

void check_case(const std::string& name) {
  INFO(name);
  const GoldenCase c = golden(name);
  const std::string policy = c.json["kvroof"]["policy"];
  const std::string tensor = c.json["kvroof"]["compare"];
  const Seen seen = replay_case(c, policy);
  const std::uint32_t before = policy.find("prompt=stream") != std::string::npos ? c.prompt - 1 : 0;
  for (const auto& [key, set] : seen.sets) {
    INFO("step " << key.first << " head " << key.second);
    CHECK(set == expected_set(c, tensor, before + key.first, key.second));
  }
  CHECK(seen.sets.size() >= c.x.tokens - c.prompt + 1);
  if (c.file.header().find("recall_steps") == nullptr) return;
  check_close(seen.recall, c.doubles("recall_steps"), 1e-5);
  check_close(seen.error, c.doubles("output_error_steps"), 1e-4);
}

}  // namespace

TEST_CASE("replay keeps the reference's sets at every step, with its recall and output error") {
  check_case("h2o_real_n48_h4_d16_lazy");
  check_case("h2o_gqa_sum_n64_h8_kv2");
  check_case("keyformer_n64_zero");
  check_case("scissorhands_A_count_n64");
  check_case("scissorhands_B_count_n120_once");
}

TEST_CASE(
    "recall and output error of full, window and oracle equal the reference's, whose budget counts the query's own "
    "token") {
  const GoldenCase c = golden("basic_n64_h4_kv2");
  for (const auto& [name, policy] : std::map<std::string, std::string>{
           {"full", "full"}, {"window", "window:budget=15"}, {"oracle", "oracle:budget=15"}}) {
    INFO(name);
    const Seen seen = replay_case(c, policy);
    check_close(seen.recall, c.doubles("recall_" + name), 1e-5);
    check_close(seen.error, c.doubles("output_error_" + name), 1e-4);
  }
  const Seen oracle = replay_case(c, "oracle:budget=15");
  for (const auto& [key, set] : oracle.sets) CHECK(set == expected_set(c, "oracle_steps", key.first - 1, key.second));
  CHECK(oracle.sets.size() == 40 * 4);
  const Seen window = replay_case(c, "window:budget=16");
  for (const auto& [key, set] : window.sets) CHECK(set == expected_set(c, "window_kept_steps", key.first, key.second));
}
