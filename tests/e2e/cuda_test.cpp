// The CUDA back end as a user meets it: without a device, and with the emulator in a device's place.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;

namespace {

const std::string kModels = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/";
constexpr const char* kIds = " --ids \"5 17 9 40 2\" -n 4 --ignore-eos ";

Ran run_emulated(const std::string& words) { return run_program(words, KVROOF_EMULATED); }

nlohmann::json json_of(const Ran& ran) {
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  return nlohmann::json::parse(ran.out);
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("the back end cuda without a usable device exits 77 before it reads model or prompt, and says why") {
  for (const char* verb : {"run", "record -o /nowhere/run.kvt", "eval --text /nowhere/text"}) {
    const Ran ran = run_program(std::string(verb) + " --backend cuda --model /nowhere/model");
    if (ran.code == 2) {  // a device is here: then it is the model that is missing
      std::puts("SKIPPED: this machine has a CUDA device");
      return;
    }
    INFO(ran.err);
    CHECK(ran.code == 77);
    CHECK(ran.out.empty());
    CHECK(lines_of(ran.err) == 1);
    CHECK(ran.err.starts_with("error: --backend cuda: "));
  }
}

TEST_CASE("a long prompt goes by cuBLASLt where it is found, and without it one line says what was missed") {
  std::string ids;
  for (int i = 0; i < 70; ++i) ids += std::to_string(i % 50) + " ";
  const std::string words = "run --format json --dtype f16 -n 2 --ignore-eos --model " + kModels + "llama-gqa --ids ";
  const Ran without = run_emulated(words + "\"" + ids + "\"");
  CHECK(json_of(without)["linear"] == "own");
  CHECK(without.err.find("note: prompts and batches took longer, with the engine's own kernels: "
                         "libcublasLt.so.13 was not found") != std::string::npos);
  setenv("KVROOF_EMULATED_LIBRARIES", KVROOF_MADE_LIBRARIES, 1);
  const Ran with = run_emulated(words + "\"" + ids + "\"");
  const Ran own = run_emulated(words + "\"" + ids + "\" --linear own");
  unsetenv("KVROOF_EMULATED_LIBRARIES");
  CHECK(json_of(with)["linear"] == "cublaslt 13.1.99");
  CHECK(json_of(with)["notes"].empty());
  CHECK(json_of(with)["ids"] == json_of(without)["ids"]);
  CHECK(json_of(own)["notes"].empty());
  const Ran asked = run_emulated(words + "\"5 6\" --linear cublaslt");
  CHECK(asked.code == 1);
  CHECK(asked.err.starts_with("error: --linear cublaslt: libcublasLt.so.13 was not found"));
  const Ran unknown = run_emulated(words + "\"5 6\" --linear cublas");
  CHECK(unknown.code == 2);
  CHECK(unknown.err.find("cublaslt") != std::string::npos);
}

TEST_CASE("where a device is, run takes the CUDA back end by itself and gives the text of the CPU") {
  const std::string words = "run --format json -q --dtype f16 --model " + kModels + "llama-gqa" + kIds;
  for (const char* policy : {"full", "h2o:budget=3"}) {
    const std::string with_policy = words + "--policy " + policy;
    const auto device = json_of(run_emulated(with_policy));
    const auto host = json_of(run_emulated(with_policy + " --backend fast"));
    CHECK(device["backend"] == "cuda");
    CHECK(host["backend"] == "fast");
    CHECK(device["ids"] == host["ids"]);
    CHECK(device["kv_resident_bytes"] == host["kv_resident_bytes"]);
    CHECK(device["decode_bytes"]["kv_read"] == host["decode_bytes"]["kv_read"]);
  }
}

TEST_CASE("random weights are the same on a device, which makes them itself, as on the CPU") {
  const kvroof::test::TemporaryFolder folder;
  std::ofstream(folder.file("tiny.yaml"))
      << "name: tiny\nfamily: qwen2\nlayers: 2\nhidden: 64\nheads: 4\nkv_heads: 2\nffn: 96\nvocab: 200\n"
         "max_positions: 512\nposition: rotary_half_split\nmlp: gated\nnorm: rms\nqkv_bias: true\n"
         "weight_type: bf16\nsource: [\"none\"]\n";
  const std::string words = "run --format json -q --policy h2o:budget=8 --random-prompt 20 -n 6 --random-weights " +
                            folder.file("tiny.yaml");
  const auto device = json_of(run_emulated(words));
  const auto host = json_of(run_emulated(words + " --backend fast"));
  CHECK(device["backend"] == "cuda");
  CHECK(device["ids"] == host["ids"]);
  CHECK(device["ids"] != json_of(run_emulated(words + " --seed 9"))["ids"]);
  const Ran both = run_emulated(words + " --model demo");
  CHECK(both.code == 2);
  CHECK(both.err.find("exclude each other") != std::string::npos);
}

TEST_CASE("a trace that the CUDA back end records is whole and replays") {
  const kvroof::test::TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = run_emulated("record -q --dtype bf16 --model " + kModels + "llama-gqa" + kIds + "-o " + trace);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(run_program("inspect --verify " + trace).code == 0);
  CHECK(run_program("replay " + trace + " --policy h2o --budget 3").code == 0);
}

TEST_CASE("a recording that meets the end of the device's memory is sealed, and says what fits") {
  const kvroof::test::TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const std::string ids = " --ids \"5 17 9 40 2 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7\"";
  std::string words = "record -q --dtype f16 -n 4 --ignore-eos --model " + kModels + "llama-gqa -o " + trace;
  for (int i = 0; i < 40; ++i) words += ids;
  const Ran ran = run_program(words, "KVROOF_EMULATED_BYTES=1500000 " + std::string(KVROOF_EMULATED));
  INFO(ran.err);
  CHECK(ran.code == 1);
  CHECK(lines_of(ran.err) == 2);
  CHECK(ran.err.find("out of device memory at the prompt of sequence") != std::string::npos);
  CHECK(ran.err.find("a batch of ") != std::string::npos);
  const Ran verified = run_program("inspect --verify " + trace);
  INFO(verified.err);
  CHECK(verified.code == 0);
  CHECK(verified.out.find("failed") != std::string::npos);
}

TEST_CASE("eval scores a text on the CUDA back end as on the CPU") {
  const kvroof::test::TemporaryFolder folder;
  std::ofstream(folder.file("text")) << "The extension is";
  const std::string words = "eval --format json -q --model demo --text " + folder.file("text");
  const auto device = json_of(run_emulated(words));
  const auto host = json_of(run_emulated(words + " --backend fast"));
  CHECK(device[0]["tokens"] == host[0]["tokens"]);
  CHECK(device[0]["perplexity"].get<double>() == Approx(host[0]["perplexity"].get<double>()).epsilon(0.02));
}

TEST_CASE("a model that no CUDA kernel runs is refused when it was asked for, and goes to the CPU when it was not") {
  struct Case {
    const char *model, *options, *what;
  };
  for (const Case& c : {Case{"llama", "--dtype f32", "weights of 32 bits"},
                        Case{"llama", "--dtype f16 --kv f32", "KV cache of 32 bits"}}) {
    const std::string words = std::string("run ") + c.options + " --model " + kModels + c.model + kIds;
    const Ran refused = run_emulated(words + "--backend cuda");
    INFO(c.model << ": " << refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.err.find(c.what) != std::string::npos);
    CHECK(refused.err.find("--backend fast") != std::string::npos);
    const Ran other = run_emulated(words);
    CHECK(other.code == 0);
    CHECK(other.err.find("fast back end") != std::string::npos);
    CHECK(other.err.find(c.what) != std::string::npos);
  }
}
