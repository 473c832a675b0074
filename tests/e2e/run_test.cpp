// `run` and `record` as a user types them.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "traces/reader.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

const std::string kSource = KVROOF_SOURCE_DIR;
const std::string kDemo = "--model " + kSource + "/models/demo ";
const std::string kGolden = "--model " + kSource + "/tests/golden/models/llama-gqa ";
const std::string kDocument = "--prompt-file " + kSource + "/models/demo/prompts/python-tempfile.txt ";

Ran run_ok(const std::string& words) {
  const Ran ran = run_program(words);
  INFO(words << "\n" << ran.err);
  REQUIRE(ran.code == 0);
  return ran;
}

nlohmann::json run_json(const std::string& words) {
  return nlohmann::json::parse(run_ok(words + " --format json -q").out);
}

std::vector<std::int64_t> golden_ids(const std::string& name) {
  const std::string path = kSource + "/tests/golden/models/llama-gqa/golden.safetensors";
  const SafetensorsFile file = SafetensorsFile::open(path).or_throw(path);
  return file.read_integers(*file.header().find(name));
}

std::string joined(const std::vector<std::int64_t>& ids) {
  std::string text;
  for (const std::int64_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text;
}

}  // namespace

TEST_CASE("run continues given ids as PyTorch does, on both back ends, without a tokenizer") {
  for (const char* backend : {"reference", "fast"}) {
    const auto json = run_json("run " + kGolden + "--ids '" + joined(golden_ids("ids_37")) +
                               "' --max-tokens 16 --ignore-eos --dtype f32 --backend " + backend);
    CHECK(json["ids"].get<std::vector<std::int64_t>>() == golden_ids("greedy_37"));
    CHECK(json["text"].is_null());
    CHECK(json["stop_reason"] == "length");
    CHECK(json["prompt_tokens"] == 37);
  }
}

TEST_CASE("dumped logits are float32 [prompt tokens, vocabulary] and PyTorch's within 1e-4 of the largest") {
  const TemporaryFolder folder;
  run_ok("run " + kGolden + "--ids '" + joined(golden_ids("ids_37")) + "' --max-tokens 1 -q --dump-logits " +
         folder.file("l.safetensors"));
  const SafetensorsFile ours = SafetensorsFile::open(folder.file("l.safetensors")).or_throw("logits");
  const std::string path = kSource + "/tests/golden/models/llama-gqa/golden.safetensors";
  const SafetensorsFile golden = SafetensorsFile::open(path).or_throw(path);
  const TensorInfo* logits = ours.header().find("logits");
  REQUIRE(logits != nullptr);
  CHECK(logits->type == DType::kF32);
  CHECK(logits->shape == std::vector<std::uint64_t>{37, 224});
  const auto a = ours.read_floats(*logits);
  const auto b = golden.read_floats(*golden.header().find("logits_37"));
  float largest = 0;
  float difference = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  CHECK(difference <= 1e-4F * largest);
}

TEST_CASE("run prints the text on stdout, the speeds on stderr, and the text is that of its ids") {
  const Ran ran = run_ok("run " + kDemo + kDocument + "--max-tokens 12");
  const auto json = run_json("run " + kDemo + kDocument + "--max-tokens 12");
  CHECK(ran.out == json["text"].get<std::string>() + "\n");
  CHECK(json["ids"].size() == 12);
  for (const char* part : {"tokens/s", "resident", "peak", "weights", "kv_read", "GB/s"}) {
    INFO(part);
    CHECK(ran.err.find(part) != std::string::npos);
  }
}

TEST_CASE("the same seed gives the same bytes for any number of threads, another seed other text") {
  const std::string words = "run " + kDemo + kDocument + "--max-tokens 40 --temperature 1 --top-p 0.9 ";
  const auto without_speeds = [&](const std::string& options) {
    auto json = run_json(words + options);
    for (const char* speed : {"tokens_per_s", "choose_seconds", "read_bandwidth"}) json.erase(speed);
    return json.dump();
  };
  const std::string one = without_speeds("--threads 1 --seed 3");
  CHECK(without_speeds("--threads 2 --seed 3") == one);
  CHECK(without_speeds("--threads 7 --seed 3") == one);
  CHECK(without_speeds("--threads 2 --seed 4") != one);
}

TEST_CASE("the JSON of one prompt has everything at the top, with speeds and the share of the host's bandwidth") {
  const auto json = run_json("run " + kDemo + "--prompt 'SQLite is' --max-tokens 8 --ignore-eos");
  for (const char* key : {"text", "ids", "logprobs", "stop_reason", "prompt_tokens", "decoded_tokens", "decode_bytes"})
    CHECK(json.contains(key));
  CHECK_FALSE(json.contains("sequences"));
  CHECK_FALSE(json.contains("totals"));
  CHECK(json["tokens_per_s"]["prefill"] > 0);
  CHECK(json["tokens_per_s"]["decode"] > 0);
  CHECK(json["choose_seconds"] > 0);
  const auto& read = json["read_bandwidth"];
  CHECK(read["share"].get<double>() ==
        Approx(read["reached_bytes_per_s"].get<double>() / read["host_bytes_per_s"].get<double>()));
}

TEST_CASE("a run gives its result within the addresses that it needs itself: the host's memory is measured in few") {
  const std::string words = "run " + kDemo + "--prompt 'SQLite is' --max-tokens 2 -q";
  const auto limited = [](const std::string& run) {
    return run_program(run, std::string("ulimit -v 900000; KVROOF_BACKEND=fast timeout 60 ") + KVROOF_PROGRAM);
  };
  // Sanitizers, and stacks of very many threads, take more without any measurement.
  if (limited(words).code != 0) return;
  const TemporaryFolder folder;
  const Ran ran = limited(words + " --format json -o " + folder.file("result.json"));
  INFO(ran.err);
  CHECK(ran.code == 0);
  const auto json = nlohmann::json::parse(slurp(folder.file("result.json")));
  CHECK(json["decoded_tokens"] == 1);
  CHECK(json["read_bandwidth"]["host_bytes_per_s"] > 0);
}

TEST_CASE("a share of the memory's bandwidth says where the bytes of a step fit in the last-level cache") {
  for (const int batch : {1, 12}) {
    const std::string words =
        "run " + kDemo + kDocument + "--max-tokens 4 --ignore-eos --batch " + std::to_string(batch);
    const auto json = run_json(words);
    const auto& sums = batch == 1 ? json : json["totals"];
    const auto& read = sums["read_bandwidth"];
    const auto& bytes = sums["decode_bytes"];
    // Three steps: the first of the four tokens is the prompt's.
    CHECK(read["step_bytes"] == (bytes["weights"].get<std::uint64_t>() + bytes["kv_read"].get<std::uint64_t>()) / 3);
    const bool cached = read["step_bytes"] <= read["last_level_cache_bytes"];
    INFO(read);
    CHECK((run_program(words).err.find("of a step fit in the last-level cache") != std::string::npos) == cached);
  }
}

TEST_CASE("the JSON of several prompts has what belongs to each in a list, and the sums under totals alone") {
  const auto json = run_json("run " + kDemo + "--prompt 'SQLite is' --ids '5 17 9' --max-tokens 8 --ignore-eos");
  for (const char* key : {"text", "ids", "stop_reason", "prompt_tokens", "decoded_tokens", "kv_resident_bytes",
                          "tokens_per_s"})
    CHECK_FALSE(json.contains(key));
  REQUIRE(json["sequences"].size() == 2);
  CHECK(json["sequences"][1]["prompt_tokens"] == 3);
  const std::uint64_t first = json["sequences"][0]["prompt_tokens"];
  CHECK(json["totals"]["prompt_tokens"] == first + 3);
  CHECK(json["totals"]["decoded_tokens"] == 14);
  CHECK(json["totals"]["kv_resident_bytes"] == (first + 3 + 14) * 6 * 4 * 128 * 2);
  CHECK(json["totals"]["tokens_per_s"]["decode"] > 0);
  CHECK(json["policy"] == "full");
}

TEST_CASE("resident bytes and their peak, allocated bytes and theirs are four numbers") {
  // While the last of six layers computes its prompt, the others are down to the budget of 100, in memory for 101.
  const auto json = run_json("run " + kDemo + kDocument + "--max-tokens 4 --ignore-eos --policy h2o:budget=100");
  const std::uint64_t row = 4 * 128 * 2;
  const std::uint64_t prompt = json["prompt_tokens"];
  CHECK(json["kv_resident_bytes"] == 6 * 100 * row);
  CHECK(json["kv_peak_bytes"] == (5 * 100 + prompt) * row);
  CHECK(json["kv_allocated_bytes"] == 6 * 101 * row);
  CHECK(json["kv_allocated_peak_bytes"] == (6 * 101 + prompt) * row);
}

TEST_CASE("a run that the context ends before --max-tokens says so, in the summary and in the JSON") {
  std::string ids;
  for (int i = 0; i < 4000; ++i) ids += std::to_string(100 + i * 37 % 900) + " ";
  const std::string words = "run " + kDemo + "--ids '" + ids + "' --policy window:budget=16 -n 500 --ignore-eos";
  const Ran ran = run_ok(words);
  CHECK(ran.err.find("stopped after 97 of 500 new tokens: the context of the model, 4096 tokens, is full") !=
        std::string::npos);
  CHECK(run_json(words)["stop_reason"] == "context");
}

TEST_CASE("a run under scissorhands without a choice notes it on stderr and in the JSON") {
  const std::string words = "run " + kDemo + kDocument + "-n 2 --policy scissorhands:budget=12";
  CHECK(run_ok(words).err.starts_with("note: scissorhands:budget=12: recent 10 and drop 6 leave no choice"));
  CHECK(run_json(words)["notes"].size() == 1);
}

TEST_CASE("several policies of a run are refused as several, before one of them lacks a budget") {
  for (const std::string verb : {"run ", "record -o /nowhere/x.kvt "}) {
    const Ran ran = run_program(verb + kGolden + "--ids \"5 17 9\" --policy h2o,window");
    CHECK(ran.code == 2);
    CHECK(ran.err.starts_with("error: --policy h2o,window: 2 policies, but a run follows one policy at one budget\n"));
  }
}

TEST_CASE("a batch gives every sequence the text that it gets alone") {
  const std::string options = " --max-tokens 8 --policy h2o:budget=0.5 --dtype f32 --ignore-eos";
  const auto batch =
      run_json("run " + kDemo + "--prompt 'The tempfile module' --prompt 'SQLite is' --batch 2" + options);
  REQUIRE(batch["sequences"].size() == 4);
  const auto first = run_json("run " + kDemo + "--prompt 'The tempfile module'" + options);
  const auto second = run_json("run " + kDemo + "--prompt 'SQLite is'" + options);
  CHECK(batch["sequences"][0]["ids"] == first["ids"]);
  CHECK(batch["sequences"][1]["ids"] == first["ids"]);
  CHECK(batch["sequences"][2]["ids"] == second["ids"]);
  CHECK(batch["sequences"][3]["text"] == second["text"]);
}

TEST_CASE("a policy bounds the resident and allocated bytes of a run") {
  const auto full = run_json("run " + kDemo + kDocument + "--max-tokens 4 --ignore-eos");
  const auto half = run_json("run " + kDemo + kDocument + "--max-tokens 4 --ignore-eos --policy h2o --budget 0.5");
  const std::uint64_t prompt = full["prompt_tokens"];
  const std::uint64_t row = 6 * 4 * 128 * 2;  // layers, heads, k and v of 64, bf16
  CHECK(full["kv_resident_bytes"] == (prompt + 3) * row);
  CHECK(half["kv_resident_bytes"] == prompt / 2 * row);
  CHECK(half["kv_allocated_bytes"] == (prompt / 2 + 1) * row);
  CHECK(half["budget"] == "50 % of the prompt");
}

TEST_CASE("a recorded run says the same as a run, and its trace holds prompt, continuation and evictions") {
  const TemporaryFolder folder;
  const std::string words =
      kDemo + kDocument + "--max-tokens 6 --ignore-eos --backend reference --policy h2o:budget=0.5 ";
  const auto run = run_json("run " + words);
  const auto recorded = run_json("record " + words + "-o " + folder.file("run.kvt"));
  CHECK(recorded["ids"] == run["ids"]);
  const TraceReader trace = TraceReader::open(folder.file("run.kvt"));
  const TraceSequence& sequence = trace.manifest().sequences.at(0);
  CHECK(sequence.prompt == run["prompt_tokens"]);
  CHECK(sequence.tokens == sequence.prompt + 5);  // the sixth new token is never fed back
  CHECK(sequence.requested_new_tokens == 6);
  CHECK(sequence.stop_reason == "length");
  CHECK(trace.manifest().policy == "h2o:budget=0.5");
  CHECK(trace.manifest().backend == "reference");
  const auto ids = trace.token_ids(0);
  const std::vector<std::int64_t> tail(ids.end() - 6, ids.end());
  CHECK(tail == run["ids"].get<std::vector<std::int64_t>>());
  CHECK(trace.logprobs(0).size() == ids.size());
  // Half of the prompt goes at once, then a token a step, in each of four heads.
  CHECK(trace.evictions(0, LayerId(0)).size() == 4 * (sequence.prompt - sequence.prompt / 2 + 5));
  CHECK(trace.steps().size() == 6);
}
