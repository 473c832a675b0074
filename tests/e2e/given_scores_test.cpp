// The policy `scores`, whose scores a user's file gives.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;
using nlohmann::json;

namespace {

const std::string kTensors =
    std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
constexpr std::uint32_t kPrompt = 40;

// A file with this tensor of floats, and its path.
std::string written(const TemporaryFolder& folder, const std::string& name, const std::string& tensor,
                    std::vector<std::uint64_t> shape, const std::vector<float>& values) {
  const std::string path = folder.file(name);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const TensorToWrite one{tensor, DType::kF32, std::move(shape), {bytes, values.size() * sizeof(float)}};
  write_safetensors(path, std::span(&one, 1), {}, {.durable = false});
  return path;
}

// −‖k‖ of the prompt's tokens in each KV head of the tensors: [heads, prompt].
std::vector<float> negative_norms() {
  const SafetensorsFile file = SafetensorsFile::open(kTensors).or_throw("tensors");
  const TensorInfo& k = *file.header().find("k");
  const std::vector<float> keys = file.read_floats(k);
  const std::size_t heads = k.shape[k.shape.size() - 3], tokens = k.shape[k.shape.size() - 2], width = k.shape.back();
  std::vector<float> scores;
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t t = 0; t < kPrompt; ++t) {
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) {
        const double x = static_cast<double>(keys[(h * tokens + t) * width + i]);
        squares += x * x;
      }
      scores.push_back(static_cast<float>(-std::sqrt(squares)));
    }
  }
  return scores;
}

}  // namespace

TEST_CASE("scores that a file has of another policy keep the sets of that policy, and cost nothing to find") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  REQUIRE(run_program("import qkv " + kTensors + " --prompt 40 -o " + trace).code == 0);
  const std::vector<float> norms = negative_norms();
  const std::string file = written(folder, "mine.safetensors", "scores", {1, norms.size() / kPrompt, kPrompt}, norms);
  const std::string points = "knorm:budget=12,scores:budget=12:file=" + file;
  const Ran ran = run_program("replay " + trace + " --policy " + points + " --format json");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  const json answer = json::parse(ran.out);
  const json& knorm = answer["points"][0];
  const json& given = answer["points"][1];
  for (const char* same :
       {"kept_tokens", "kv_resident_bytes", "kv_read_bytes", "recall_mean", "recall_worst1", "output_error"}) {
    INFO(same);
    REQUIRE(knorm.contains(same));
    CHECK(given[same] == knorm[same]);
  }
  // Every head has a budget of its own: as many rows, in other heads.
  const Ran together = run_program("replay " + trace + " --policy scores:budget=12:share=layer:file=" + file +
                                   " --format json");
  CHECK(json::parse(together.out)["points"][0]["kept_tokens"] == given["kept_tokens"]);
}

TEST_CASE("the engine keeps by a file what a replay of its run keeps, whoever shares the budget") {
  const TemporaryFolder folder;
  constexpr std::uint32_t kLayers = 6, kHeads = 4, kTokens = 60;  // of the demo model, and a prompt
  std::vector<float> scores;
  std::uint32_t state = 1;
  for (std::uint32_t i = 0; i < kLayers * kHeads * kTokens; ++i) {
    state = state * 1664525U + 1013904223U;
    scores.push_back(static_cast<float>(state >> 8) * static_cast<float>(1 + i / kTokens % 5));  // heads differ
  }
  const std::string file = written(folder, "drawn", "scores", {kLayers, kHeads, kTokens}, scores);
  std::string ids;
  for (std::uint32_t t = 0; t < kTokens; ++t) ids += fmt::format("{} ", 3 + 37 * t % 500);
  for (const char* share : {"head", "layer", "model"}) {
    INFO(share);
    const std::string policy = fmt::format("scores:budget=0.3:share={}:file={}", share, file);
    const std::string trace = folder.file(std::string(share) + ".kvt");
    REQUIRE(run_program("record --model demo --max-tokens 8 --ignore-eos --backend reference -q --ids '" + ids +
                        "' --policy " + policy + " -o " + trace).code == 0);
    const Ran ran = run_program("replay " + trace + " --policy " + policy);
    CHECK(ran.out.find("all 24 recorded evictions are reproduced") != std::string::npos);  // one of each head
    const json answer = json::parse(run_program("replay " + trace + " --policy " + policy + " --format json").out);
    const std::string full = folder.file(std::string(share) + "-full.kvt");
    REQUIRE(run_program("record --model demo --max-tokens 8 --ignore-eos --backend reference -q --ids '" + ids +
                        "' -o " + full).code == 0);
    CHECK(run_program("replay " + full + " --policy " + policy + " --closed-loop " + trace).code == 0);
    // 18 of 60 tokens a head stay on average, and a step adds one: 22 in the middle of 7.
    CHECK(answer["points"][0]["kept_tokens"].get<double>() == Approx(18 + 4).margin(0.5));
  }
}

TEST_CASE("a file of scores that does not fit is refused with what is expected") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  REQUIRE(run_program("import qkv " + kTensors + " --prompt 40 -o " + trace).code == 0);
  const auto says = [&](const std::string& file, const std::string& why) {
    const Ran ran = run_program("replay " + trace + " --policy scores:budget=12:file=" + file);
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.err.find(why) != std::string::npos);
  };
  const std::vector<float> some(2 * 30, 1.0F);
  says(written(folder, "short", "scores", {1, 2, 30}, some),
       "has scores of 30 tokens, and the prompt of sequence 0 has 40");
  says(written(folder, "heads", "scores", {1, 1, 40}, std::vector<float>(40)),
       "has 1 layers of 1 heads, the model 1 of 2");
  says(written(folder, "flat", "scores", {60}, some), "tensor scores is f32 [60]: expected F32, F16 or BF16 [layers");
  says(written(folder, "other", "mine", {1, 2, 30}, some), "has no tensor `scores` and no `scores.0`");
  std::vector<float> bad(2 * 40, 1.0F);
  bad[43] = std::nanf("");
  says(written(folder, "nan", "scores", {1, 2, 40}, bad), "has a NaN for token 3 of head 1 in layer 0");
  says(folder.file("absent"), "absent");
  const Ran none = run_program("replay " + trace + " --policy scores:budget=12");
  CHECK(none.code == 2);
  CHECK(none.err.find("file= is missing") != std::string::npos);
  const Ran nominal = run_program("plan --model llama-3-8b --device h200 --policy scores:budget=12:file=" +
                                  written(folder, "good", "scores", {1, 2, 40}, std::vector<float>(80)));
  CHECK(nominal.code == 2);
  CHECK(nominal.err.find("give a recorded run (--trace)") != std::string::npos);
}
