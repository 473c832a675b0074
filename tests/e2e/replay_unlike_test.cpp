// kvroof replay and plan of traces whose sequences are not alike, some of which decoded nothing.
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof::test;
using nlohmann::json;

namespace {

// Sequences of 24 tokens, a prompt of 16 each but for the last one's, which may be all of it.
std::string write_sequences(const TemporaryFolder& folder, const std::string& name, std::uint32_t sequences,
                            std::uint32_t last_prompt) {
  Qkv shape;
  shape.tokens = 24;
  TraceOptions options;
  options.prompt = 16;
  options.sequences = sequences;
  options.last_prompt = last_prompt;
  write_trace(folder.path() / name, random_qkv(shape, 7), options);
  return folder.file(name);
}

json answer_of(const std::string& words) {
  const Ran ran = run_program(words + " --format json");
  INFO(words << "\n" << ran.err);
  REQUIRE(ran.code == 0);
  return json::parse(ran.out);
}

}  // namespace

TEST_CASE("means over decode steps are those of the sequences that decoded, and a note counts the others") {
  const TemporaryFolder folder;
  const std::string one = write_sequences(folder, "one.kvt", 1, 0), two = write_sequences(folder, "two.kvt", 2, 24);
  const std::string words = " --policy full,window --budget 0.5";
  const json alone = answer_of("replay " + one + words), both = answer_of("replay " + two + words);
  for (const std::size_t point : {0, 1}) {
    for (const char* key : {"kept_tokens", "kv_resident_bytes", "kv_read_bytes"}) {
      CHECK(both["points"][point][key] == alone["points"][point][key]);
    }
    CHECK(both["points"][point]["accounting"]["kv"] == alone["points"][point]["accounting"]["kv"]);
  }
  CHECK_THAT(both["manifest"]["notes"].dump(),
             ContainsSubstring("1 of 2 sequences decoded no token: means over decode steps are of the others"));
  CHECK(alone["manifest"]["notes"].dump().find("decoded no token") == std::string::npos);
}

TEST_CASE("a projection leaves out sequences without decoded tokens, and is refused where there are no others") {
  const TemporaryFolder folder;
  const std::string one = write_sequences(folder, "one.kvt", 1, 0), two = write_sequences(folder, "two.kvt", 2, 24);
  const std::string none = write_sequences(folder, "none.kvt", 1, 24);
  const std::string as = " --policy full,window --budget 0.5 --as llama-3-8b --prompt 64 --output 8";
  const json alone = answer_of("replay " + one + as), both = answer_of("replay " + two + as);
  for (const std::size_t point : {0, 1}) CHECK(both["points"][point] == alone["points"][point]);
  CHECK_THAT(both["manifest"]["notes"].dump(), ContainsSubstring("are of the others, and so is what is projected"));
  const std::string plan = "plan --model llama-3-8b --device h100-sxm --policy window:budget=0.5 --prompt 64 --output 8"
                           " --batch 4 --trace ";
  CHECK(answer_of(plan + two)["accounting"] == answer_of(plan + one)["accounting"]);
  for (const std::string& words : {"replay " + none + as, plan + none}) {
    const Ran ran = run_program(words);
    CHECK(ran.code == 2);
    CHECK_THAT(ran.err, ContainsSubstring("the trace has no decoded tokens to project"));
  }
}

TEST_CASE("the largest batch of unlike sequences holds no more than the device has room for") {
  const TemporaryFolder folder;
  // One decodes 8 tokens, the other 23 beyond a prompt of one.
  const std::string trace = write_sequences(folder, "unlike.kvt", 2, 1);
  const json answer = answer_of("replay " + trace + " --policy full --quality none --device h100-sxm --batch max");
  const json& point = answer["points"][0];
  const json& kv = point["accounting"]["kv"];
  CHECK(kv["allocated_bytes"] >= kv["resident_bytes"]);
  CHECK(kv["resident_bytes"].get<double>() < 80.0 * (1ULL << 30));
}
