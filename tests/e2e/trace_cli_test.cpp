// What a user meets when a trace is inspected, repaired, imported, or no longer whole.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

// One clear sentence on stderr, at most five lines, and the exit code.
void check_error(const Ran& ran, int code, const std::string& expected) {
  INFO("stdout: " << ran.out << "\nstderr: " << ran.err);
  CHECK(ran.code == code);
  CHECK(ran.err.starts_with("error: "));
  CHECK(ran.err.find(expected) != std::string::npos);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') <= 5);
}

}  // namespace

TEST_CASE("inspect of a trace that was not sealed does not say that nothing was recorded of its sequences") {
  const TemporaryFolder folder;
  write_small_trace(folder.file("run.kvt"));
  fs::remove(folder.path() / "run.kvt" / "seal.json");
  const Ran text = run_program("inspect " + folder.file("run.kvt"));
  CHECK_THAT(text.out, ContainsSubstring("3 prompt tokens, --repair counts those recorded, 6 new ones requested"));
  const auto json = nlohmann::json::parse(run_program("inspect " + folder.file("run.kvt") + " --format json").out);
  CHECK(json.at("manifest").at("sequences").at(0).at("tokens").is_null());
  const Ran repaired = run_program("inspect " + folder.file("run.kvt") + " --repair");
  CHECK_THAT(repaired.out, ContainsSubstring("3 prompt tokens, 8 recorded, 6 new ones requested"));
}

TEST_CASE("A trace whose recording still runs is said to be still written, and no repair of it is recommended") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const TraceManifest m = small_manifest();
  {
    TraceWriter writer(trace, m, 1);
    small_step(writer, m, 0);
    for (const std::string& words : {"inspect " + trace, "replay " + trace + " --policy h2o --budget 0.5"}) {
      const Ran ran = run_program(words);
      check_error(ran, 4, trace + ": it is still being written; 1 step is intact\nnote: it can be read once");
      for (const char* wrong : {"repair", "did not end", "not sealed"}) {
        CHECK((ran.out + ran.err).find(wrong) == std::string::npos);
      }
    }
    const auto json = nlohmann::json::parse(run_program("inspect --format json " + trace).out);
    CHECK(json["being_written"] == true);
  }
  const Ran killed = run_program("inspect " + trace);  // as a killed recorder leaves it
  CHECK_THAT(killed.out, ContainsSubstring("not sealed: the recording did not end"));
  CHECK_THAT(killed.err, ContainsSubstring("inspect --repair"));
  CHECK(nlohmann::json::parse(run_program("inspect --format json " + trace).out)["being_written"] == false);
}

TEST_CASE("inspect says what is in a trace, as text and as JSON") {
  const TemporaryFolder folder;
  write_small_trace(folder.file("run.kvt"));
  const Ran text = run_program("inspect " + folder.file("run.kvt") + " --verify");
  CHECK(text.code == 0);
  CHECK(text.err.empty());
  for (const char* part : {"every checksum is right", "3 of 3 intact", "h2o:budget=3", "bf16", "8 recorded", "ALiBi"}) {
    CHECK(text.out.find(part) != std::string::npos);
  }
  const auto json = nlohmann::json::parse(run_program("inspect " + folder.file("run.kvt") + " --format json").out);
  CHECK(json.at("sealed") == true);
  CHECK(json.at("intact_steps") == 6);
  CHECK(json.at("manifest").at("layers").size() == 2);
}

TEST_CASE("Every command that reads a trace ends with 4 on one that is not whole, and says how much is") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  write_small_trace(trace);
  fs::remove(fs::path(trace) / "seal.json");
  check_error(run_program("inspect " + trace), 4, "6 steps are intact");
  check_error(run_program("replay " + trace + " --policy h2o --budget 0.5"), 4, "6 steps are intact");
  const std::string segment = trace + "/segments/00001.safetensors";
  std::string bytes = slurp(segment);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(segment, bytes);
  check_error(run_program("inspect " + trace + " --verify"), 4, "1 step is intact");
  const Ran repaired = run_program("inspect --repair " + trace);
  CHECK(repaired.code == 0);
  CHECK(repaired.out.find("repaired") != std::string::npos);
  CHECK(run_program("inspect --verify " + trace).code == 0);
  CHECK(fs::exists(trace + "/lost/00001.safetensors"));
  check_error(run_program("inspect " + folder.file("absent.kvt")), 1, "there is no trace");
}

TEST_CASE("policies that turn queries back say where imported tensors do not tell how these were turned") {
  const TemporaryFolder folder;
  const std::string file = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
  const auto import = [&](const std::string& name, const std::string& more) {
    const std::string trace = folder.file(name);
    REQUIRE(run_program("import qkv " + file + " --prompt 40 " + more + " -o " + trace).code == 0);
    return trace;
  };
  const auto note_of = [](const std::string& trace, const std::string& policies) {
    const Ran ran = run_program("replay " + trace + " --policy " + policies + " --budget 8 --quality none");
    REQUIRE(ran.code == 0);
    const std::size_t at = ran.out.find("the trace tells of no rotary embedding");
    return at == std::string::npos ? std::string() : ran.out.substr(at);
  };
  const std::string untold = import("untold.kvt", "");
  CHECK(note_of(untold, "h2o,streaming").empty());
  const std::string note = note_of(untold, "expected-attention,streaming:positions=slot,h2o");
  CHECK(note.find("expected-attention:budget=8, streaming:budget=8:positions=slot") != std::string::npos);
  CHECK(note.find("h2o") == std::string::npos);
  const std::string analysis = "analyze " + untold + " policy --budget 8 --policy ";
  const std::string noted = "note: the trace tells of no rotary embedding, which expected-attention:budget=8 would";
  CHECK(run_program(analysis + "h2o,expected-attention").err.find(noted) != std::string::npos);
  CHECK(run_program(analysis + "h2o").err.find("no rotary embedding") == std::string::npos);
  const std::string told = import("told.kvt", "--rotary half_split:theta=500000:dims=8");
  CHECK(note_of(told, "expected-attention,streaming:positions=slot").empty());
  CHECK(run_program("inspect " + told).out.find("rotary half_split of 8, base 500000") != std::string::npos);
  CHECK(note_of(import("alibi.kvt", "--alibi"), "streaming:positions=slot").empty());
  const std::string recorded = folder.file("recorded.kvt");
  REQUIRE(run_program("record --model " + std::string(KVROOF_SOURCE_DIR) +
                      "/tests/golden/models/gpt2 --ids '5 17 9 3' --max-tokens 3 -o " + recorded)
              .code == 0);
  CHECK(note_of(recorded, "streaming:positions=slot").empty());  // an engine knows that there is none

  const std::string out = folder.file("out.kvt");
  const std::string words = "import qkv " + file + " --prompt 40 -o " + out + " --rotary ";
  check_error(run_program(words + "half_spit"), 2, "did you mean half_split?");
  check_error(run_program(words + "half_split:thet=3"), 2, "did you mean theta?");
  check_error(run_program(words + "half_split:theta=none"), 2, "none");
  check_error(run_program(words + "half_split:dims=64"), 2, "heads of 16");
  check_error(run_program("import nsys x --rotary half_split -o " + out), 2, "--rotary is about tensors");
  CHECK_FALSE(fs::exists(out));
}

TEST_CASE("import qkv asks for what is missing and names what is wrong") {
  const TemporaryFolder folder;
  const std::string out = folder.file("out.kvt");
  write_file(folder.file("bad.safetensors"), "not a safetensors file at all");
  check_error(run_program("import"), 2, "import");
  check_error(run_program("import qkw x --prompt 1 -o " + out), 2, "did you mean qkv?");
  check_error(run_program("import qkv x -o " + out), 2, "--prompt");
  check_error(run_program("import qkv x --prompt 3"), 2, "-o run.kvt");
  check_error(run_program("import qkv x --prompt three -o " + out), 2, "three");
  check_error(run_program("import qkv " + folder.file("absent") + " --prompt 3 -o " + out), 1, "No such file");
  check_error(run_program("import qkv " + folder.file("bad.safetensors") + " --prompt 3 -o " + out), 1,
              "bad.safetensors");
  CHECK_FALSE(fs::exists(out));
}
