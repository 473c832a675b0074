// --kv as a user meets it: the same choice in every verb.
#include <map>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using nlohmann::json;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;

namespace {

const std::string kModel = " --model " KVROOF_SOURCE_DIR "/tests/golden/models/llama-gqa";
const std::string kPrompt = " --ids \"5 17 9 40 2 61 33 8\" -n 6 --ignore-eos ";

json json_of(const std::string& words, const char* program = KVROOF_PROGRAM) {
  const Ran ran = run_program(words + " --format json", program);
  INFO(words << "\n" << ran.err);
  REQUIRE(ran.code == 0);
  return json::parse(ran.out);
}

}  // namespace

TEST_CASE("every back end runs an int8 and an int4 cache in the same bytes, the former to the same text") {
  for (const char* kv : {"int8", "int4"}) {
    INFO(kv);
    const std::string words =
        "run" + kModel + kPrompt + "--dtype bf16 --policy h2o:budget=6 --kv " + kv + " --backend ";
    const json reference = json_of(words + "reference"), fast = json_of(words + "fast");
    const json cuda = json_of(words + "cuda", KVROOF_EMULATED);
    CHECK(reference["kv_type"] == kv);
    for (const json& other : {fast, cuda}) {
      // A step of int4 is wide: where sums differ in their last bit a code may fall to the other side of it.
      if (kv == std::string("int8")) CHECK(other["ids"] == reference["ids"]);
      // The device rounds a prompt's activations to the weights' type: 0.02 with a cache of bf16 already, and in int4
      // what of it carries a code to the other side is a seventh of a row's largest element.
      const double margin = kv == std::string("int8") ? 0.05 : 0.5;
      CHECK(other["ids"][0] == reference["ids"][0]);
      CHECK(other["logprobs"][0].get<double>() == Approx(reference["logprobs"][0].get<double>()).margin(margin));
      CHECK(other["decode_bytes"]["kv_read"] == reference["decode_bytes"]["kv_read"]);
      CHECK(other["kv_resident_bytes"] == reference["kv_resident_bytes"]);
    }
  }
}

TEST_CASE("a cache that a back end or a trace cannot hold is refused in one sentence") {
  for (const char* words : {"run --backend cuda --kv kivi2", "run --backend cuda --kv int4g64",
                            "record -o /nowhere/x.kvt --backend fast --kv kivi4",
                            "record -o /nowhere/x.kvt --backend cuda --kv int8"}) {
    const Ran ran = run_program(words + kModel + kPrompt + "--dtype bf16", KVROOF_EMULATED);
    INFO(words << "\n" << ran.err);
    CHECK(ran.code == 2);
    const bool of_cache = ran.err.find("a KV cache of") != std::string::npos;
    const bool says_what = of_cache || ran.err.starts_with("error: record --kv");
    CHECK(says_what);
  }
  const Ran typo = run_program("run --kv int5" + kModel + kPrompt);
  CHECK(typo.code == 2);
  CHECK(typo.err.starts_with("error: --kv int5: expected f32, f16, bf16, int8, int4, int4g64, kivi2, kivi4"));
}

TEST_CASE("a replay prices a quantised cache and says what its rounding does, a preset names policy and cache") {
  const TemporaryFolder folder;
  const std::string trace = (folder.path() / "x.kvt").string();
  REQUIRE(run_program("record --backend reference -o " + trace + kModel + kPrompt).code == 0);
  const auto rows = [&](const std::string& words) { return json_of("replay " + trace + " " + words)["points"]; };
  const json plain = rows("--policy full")[0], four = rows("--policy full --kv int4")[0];
  const json eight = rows("--policy full --kv int8")[0];
  CHECK(plain["output_error"] == 0);
  CHECK(eight["output_error"] > 0);
  CHECK(four["output_error"] > 4 * eight["output_error"].get<double>());
  CHECK(four["recall_mean"] == 1);
  CHECK(four["kv_read_bytes"].get<double>() - four["kv_read_scale_bytes"].get<double>() ==
        Approx(plain["kv_read_bytes"].get<double>() / 8));
  const json both = rows("--policy scissorhands,scissorhands-4bit --budget 4");
  REQUIRE(both.size() == 2);
  CHECK(both[0]["kv_type"] == "f32");
  CHECK(both[1]["kv_type"] == "int4g64");
  CHECK(both[1]["point"] == "scissorhands-4bit:budget=4");
  CHECK(both[0]["kept_tokens"] == both[1]["kept_tokens"]);
  CHECK(run_program("replay " + trace + " --policy scissorhands-4bit:budget=4 --kv int8").code == 2);
  CHECK(run_program("policies").out.find("\nscissorhands-4bit") != std::string::npos);
}

// Two layers of two KV heads of 64: a row of k and v takes 2 · (64 + 4) bytes in int8.
TEST_CASE("a recording of a quantised cache names its type, and a replay has its bytes and compares its evictions") {
  const TemporaryFolder folder;
  const std::string trace = (folder.path() / "x.kvt").string();
  const Ran ran = run_program("record --backend reference --policy window:budget=6 --kv int8 -o " + trace + kModel +
                              kPrompt);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(ran.err.find("it names the type of its cache, int8") != std::string::npos);
  CHECK(run_program("inspect " + trace).out.find("int8") != std::string::npos);
  const json answer = json_of("replay " + trace + " --policy window:budget=6,streaming:budget=6:positions=slot");
  const json& point = answer["points"][0];
  CHECK(point["kv_type"] == "int8");
  CHECK(point["kv_resident_bytes"] == 6 * 4 * 2 * (64 + 4));
  CHECK(point["kv_read_bytes"] == 7 * 4 * 2 * (64 + 4));
  CHECK(answer["points"][1]["kv_type"] == "f32");  // no quantised cache follows positions that change
  CHECK(answer["manifest"]["trace"]["cache_type"] == "int8");
  const std::string notes = answer["manifest"]["notes"].dump();
  CHECK(notes.find("the recorded cache was int8") != std::string::npos);
  CHECK(notes.find("recorded evictions are reproduced") != std::string::npos);
  CHECK(json_of("replay " + trace + " --policy window:budget=6 --kv f16")["points"][0]["kv_type"] == "f16");
}

TEST_CASE("each point of a recording of a quantised cache has one note on the rows that its policy meets") {
  const TemporaryFolder folder;
  const std::string trace = (folder.path() / "x.kvt").string();
  REQUIRE(run_program("record --backend reference --policy scissorhands-4bit:budget=6 -o " + trace + kModel + kPrompt)
              .code == 0);
  const auto notes = [&](const std::string& words) {
    return json_of("replay " + trace + " --policy " + words)["manifest"]["notes"].dump();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  // The preset names the cache that was recorded: its rows are rounded already, and its evictions are compared.
  const std::string preset = notes("full,scissorhands-4bit:budget=6");
  CHECK(has(preset, "\"the recorded cache was int4g64: bytes and time are of that type"));
  CHECK_FALSE(has(preset, "cache of int4g64"));
  CHECK(has(preset, "scissorhands-4bit:budget=6: all "));
  CHECK(has(notes("scissorhands:budget=6"), "scissorhands:budget=6: all "));
  const std::string plain = notes("full --kv bf16");
  CHECK(has(plain, "the recorded cache was int4g64: bytes and time are of another type"));
  const std::string other = notes("full --kv int8");
  CHECK(has(other, "\"cache of int8: its policies see logits of k"));
  CHECK(has(other, "the recorded cache had rounded k and v to int4g64 before"));
}

// 640 tokens at the end: k of 640 is quantised, v of 512; the window has room for 128 rows of k, and for 128 and the
// newest of v. Llama-2-7B has 32 layers of 32 heads of 128.
TEST_CASE("the ledger of a plan has codes, scales and residual window of KIVI as its formula says") {
  const json plan = json_of("plan --model llama-2-7b --device h200 --prompt 512 --output 128 --kv kivi2");
  std::map<std::string, std::uint64_t> bytes;
  for (const json& line : plan["ledger"]) bytes[line["name"]] = line["bytes"];
  const std::uint64_t heads = 32 * 32 * plan["batch"].get<std::uint64_t>();
  CHECK(bytes["kv_codes"] == heads * 128 * (640 + 512) / 4);
  CHECK(bytes["kv_scales"] == heads * 128 * (640 + 512) / 8);
  CHECK(bytes["kv_residual"] == heads * 128 * 2 * (128 + 129));
}

TEST_CASE("a quantised cache is refused where rows merge or change their positions, with what to take instead") {
  for (const char* policy : {"d2o:budget=0.5", "quest:budget=0.5", "streaming:budget=0.5:positions=slot"}) {
    const Ran ran = run_program(std::string("plan --model llama-2-7b --device h200 --kv int8 --policy ") + policy);
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.err.find("take f16 or bf16") != std::string::npos);
  }
}

TEST_CASE("a bound that chooses among all tokens is refused a cache whose rows change with age") {
  const Ran ran = run_program("plan --model llama-2-7b --device h200 --kv kivi2 --policy oracle:budget=0.5");
  INFO(ran.err);
  CHECK(ran.code == 2);
  CHECK(ran.err.find("chooses anew among all tokens") != std::string::npos);
}

TEST_CASE("of several types of weights each has a cache of its own type, whatever their order") {
  const json alone = json_of("plan --model llama-3-8b --device h100-sxm --dtype f16");
  for (const char* types : {"f32,f16", "f16,f32"}) {
    const json of_two = json_of(std::string("plan --model llama-3-8b --device h100-sxm --dtype ") + types);
    CHECK(of_two["kv_type"] == "f16");
    CHECK(of_two["largest_batch"] == alone["largest_batch"]);
  }
}
