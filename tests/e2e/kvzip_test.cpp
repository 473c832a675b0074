// The policy `kvzip`: the model repeats its prompt, whose scores a replay takes from a file.
#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;
using nlohmann::json;

namespace {

constexpr std::uint32_t kTokens = 60;

std::string prompt(std::uint32_t step) {
  std::string ids;
  for (std::uint32_t t = 0; t < kTokens; ++t) ids += fmt::format("{} ", 3 + step * t % 500);
  return " --ids '" + ids + "'";
}

std::string generating(const std::string& verb, const std::string& more, std::uint32_t step = 37) {
  return verb + " --model demo --max-tokens 8 --ignore-eos --backend reference -q" + prompt(step) + " " + more;
}

void refuses(const std::string& words, const std::string& why) {
  const Ran ran = run_program(words);
  INFO(words << "\n" << ran.err);
  CHECK(ran.code == 2);
  CHECK(ran.err.find(why) != std::string::npos);
}

}  // namespace

TEST_CASE("a replay keeps by the scores of a repetition what a run keeps that makes them itself") {
  const TemporaryFolder folder;
  const std::string scores = folder.file("scores"), full = folder.file("full.kvt"), closed = folder.file("own.kvt");
  REQUIRE(run_program(generating("record", "-o " + full)).code == 0);
  for (const char* share : {"model", "layer"}) {
    INFO(share);
    const std::string policy = fmt::format("kvzip:budget=0.3:share={}:repeat=40", share);
    const std::string options = "--policy " + policy + " --dump-scores " + scores + " -o " + closed;
    REQUIRE(run_program(generating("record", options)).code == 0);
    const json answer =
        json_of("replay " + full + " --policy " + policy + ":file=" + scores + " --closed-loop " + closed);
    for (const json& layer : answer["open_closed_loop"]["overlap"][0]) CHECK(layer == 1.0);
    const Ran again = run_program("replay " + closed + " --policy " + policy + ":file=" + scores);
    CHECK(again.out.find("reproduced") != std::string::npos);
    CHECK(answer["points"][0]["kept_tokens"].get<double>() == Approx(18 + 4).margin(0.5));  // as `scores` in its test
    std::filesystem::remove_all(closed);
  }
  // The same file under `scores` is the same policy.
  const auto recall = [&](const std::string& policy) {
    return json_of("replay " + full + " --policy " + policy + ":file=" + scores)["points"][0]["recall_mean"];
  };
  CHECK(recall("kvzip:budget=0.3") == recall("scores:budget=0.3:share=model"));
}

TEST_CASE("several prompts have scores each, and an evaluation repeats each of its prompts") {
  const TemporaryFolder folder;
  const std::string file = folder.file("scores");
  REQUIRE(run_program("run --model demo --max-tokens 2 -q --policy kvzip:budget=0.5" + prompt(37) + prompt(41) +
                      " --dump-scores " + file).code == 0);
  const SafetensorsFile scores = SafetensorsFile::open(file).or_throw("scores");
  for (const char* name : {"scores.0", "scores.1"}) {
    REQUIRE(scores.header().find(name) != nullptr);
    CHECK(scores.header().find(name)->shape == std::vector<std::uint64_t>{6, 4, kTokens});
  }
  CHECK(scores.read_floats(*scores.header().find("scores.0")) != scores.read_floats(*scores.header().find("scores.1")));
  const json rows = json_of("eval --model demo --text " + std::string(KVROOF_SOURCE_DIR) +
                            "/models/demo/prompts/sqlite-rbu.txt --context 256 --policy kvzip,random --budget 0.3 -q");
  const auto nats = [&](const std::string& policy) {
    for (const json& row : rows) {
      if (row["spec"].get<std::string>().starts_with(policy)) return row["nats_difference"].get<double>();
    }
    return -1.0;
  };
  CHECK(nats("kvzip") < 0.5 * nats("random"));
}

TEST_CASE("what cannot be repeated is refused with what to do") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  REQUIRE(run_program(generating("record", "-o " + trace)).code == 0);
  const std::string missing = "policy kvzip: file= is missing: a recording has no passes in which the model repeats";
  refuses("replay " + trace + " --policy kvzip:budget=0.5", missing);
  refuses("analyze " + trace + " policy --policy kvzip", missing);
  refuses("plan --model demo --device h200 --policy kvzip:budget=0.5 --trace " + trace, missing);
  refuses("export perfetto " + trace + " --policy kvzip:budget=0.5 --device h200 -o " + folder.file("p"), missing);
  refuses(generating("run", "--policy h2o:budget=0.5 --dump-scores " + folder.file("s")),
          "--dump-scores: policy h2o:budget=0.5 has no scores of a repetition of the prompt");
  const std::string models = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/";
  refuses("run --model " + models + "llama-gqa --ids '1 2 3 4' --policy kvzip:budget=2", "has no tokenizer.json");
  refuses("run --random-weights " + models + "llama-gqa --random-prompt 8 --policy kvzip:budget=2",
          "the model is asked in words to repeat the prompt");
}

TEST_CASE("a prompt takes two to three times as long where the model repeats it, and a token no longer") {
  const auto answer_of = [](const std::string& policy) {
    return json_of("compare --model llama-3.1-8b --engine vllm --device h100-sxm --prompt 8k --output 1k --batch 4 "
                   "--policy " + policy);
  };
  const json answer = answer_of("kvzip:budget=0.3"), other = answer_of("snapkv:budget=0.3");
  CHECK(has_note(answer, "under kvzip the model repeats a prompt once it has computed it"));
  CHECK_FALSE(has_note(other, "the model repeats a prompt"));
  const json &kvzip = answer["points"][0], &snapkv = other["points"][0];
  const double times = value(kvzip["ttft_ms"]) / value(snapkv["ttft_ms"]);
  CHECK(times > 2);  // kvpress' own warning
  CHECK(times < 3);
  CHECK(kvzip["tpot_ms"].get<double>() == Approx(snapkv["tpot_ms"].get<double>()).epsilon(0.02));
}

TEST_CASE("a server that has the model repeat prompts answers fewer requests, each first token later") {
  const auto row = [](const std::string& policy) {
    return simulate("--model llama-3.1-8b --engine vllm --device h100-sxm --prompt 8k --output 64 --clients 8 "
                    "--policy " + policy)["rows"][0];
  };
  const json kvzip = row("kvzip:budget=0.3"), snapkv = row("snapkv:budget=0.3");
  INFO(kvzip.dump());
  const double times = value(snapkv["requests_per_s"]) / value(kvzip["requests_per_s"]);
  CHECK(times > 1.7);  // prompts are most of what such a server does
  CHECK(times < 3);
}
