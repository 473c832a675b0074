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
