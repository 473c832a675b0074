// Damaged traces: whatever is cut, flipped, missing or swapped, a reader refuses the trace or returns what was
// recorded.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

// A trace and what a reader says of it.
struct Fixture {
  TemporaryFolder folder;
  fs::path trace = folder.path() / "run.kvt";
  std::string expected;
  Fixture() : Fixture([](const fs::path& path) { write_small_trace(path); }) {}
  explicit Fixture(void (*write)(const fs::path&)) {
    write(trace);
    expected = everything(TraceReader::open(trace));
  }
};

// One layer, one head, one sequence, two segments: few enough bytes to try each of them.
void write_tiny_trace(const fs::path& path) {
  TraceManifest m = small_manifest();
  m.model_shape_json = "";
  m.layers.resize(1);
  m.layers[0].query_heads = m.layers[0].kv_heads = 1;
  m.sequences.resize(1);
  TraceWriter writer(path, m, 1);
  for (std::uint32_t step = 0; step < 2; ++step) {
    add_small_rows(writer, m, 0, step, 1);
    const std::vector<std::int64_t> id{step};
    const std::vector<float> logprob{-1};
    writer.add_tokens(0, step, id, logprob);
    if (step == 1) writer.add_eviction({0, 1, 0, 0, 0});
    writer.end_step({step, step == 0 ? "prefill" : "decode", 1, 5, 6, {}});
  }
  writer.seal();
}

const std::vector<std::string> kTextFiles = {"manifest.json", "journal.jsonl", "seal.json"};
const std::vector<std::string> kSegments = {"segments/00000.safetensors", "segments/00001.safetensors"};
const std::vector<std::string> kFiles = {
    "manifest.json", "journal.jsonl", "seal.json", "segments/00000.safetensors", "segments/00001.safetensors",
    "kernels.sqlite"};

// "same", "refused" (exit code 4, saying how much is intact or which version is needed), or what went wrong.
std::string outcome(const Fixture& f) {
  try {
    return everything(TraceReader::open(f.trace)) == f.expected ? "same" : "other content was read";
  } catch (const Error& e) {
    const std::string why = e.what();
    const bool counted = why.ends_with(" intact") || why.find("format version") != std::string::npos;
    return e.code() == ExitCode::kDamagedTrace && counted ? "refused" : "wrong error: " + why;
  }
}

// Flips bits one at a time, every one or one of each byte.
void flip_bits(const Fixture& f, const std::string& name, bool one_of_each_byte) {
  const std::string whole = slurp(f.trace / name);
  const int fd = open((f.trace / name).c_str(), O_WRONLY);
  REQUIRE(fd >= 0);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    if (one_of_each_byte && bit % 8 != bit / 8 % 8) continue;
    const char flipped = static_cast<char>(whole[bit / 8] ^ (1 << (bit % 8)));
    REQUIRE(pwrite(fd, &flipped, 1, static_cast<off_t>(bit / 8)) == 1);
    const std::string result = outcome(f);
    if (result != "refused" && !(name == "seal.json" && result == "same"))
      FAIL(name << " bit " << bit << ": " << result);
    REQUIRE(pwrite(fd, &whole[bit / 8], 1, static_cast<off_t>(bit / 8)) == 1);
  }
  close(fd);
  CHECK(outcome(f) == "same");
}

std::string refusal(const fs::path& trace) {
  try {
    everything(TraceReader::open(trace));
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kDamagedTrace);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("Damaged trace: cut at any byte of any file, it is refused") {
  const Fixture f(write_tiny_trace);
  for (const std::string& name : kFiles) {
    const std::string whole = slurp(f.trace / name);
    for (std::size_t n = whole.size(); n-- > 0;) {
      REQUIRE(truncate((f.trace / name).c_str(), static_cast<off_t>(n)) == 0);
      const std::string result = outcome(f);
      // The newline that ends the seal carries nothing.
      const bool harmless = name == "seal.json" && n + 1 == whole.size() && result == "same";
      if (!harmless && result != "refused") FAIL(name << " cut to " << n << " bytes: " << result);
    }
    write_file(f.trace / name, whole);
  }
  CHECK(outcome(f) == "same");
}

TEST_CASE("Damaged trace: whichever single bit flips in a segment, it is refused") {
  const Fixture f(write_tiny_trace);
  for (const std::string& name : kSegments) flip_bits(f, name, false);
}

TEST_CASE("Damaged trace: whichever single bit flips in manifest, journal or seal, it is refused or reads the same") {
  const Fixture f(write_tiny_trace);
  for (const std::string& name : kTextFiles) flip_bits(f, name, false);
}

TEST_CASE("Damaged trace: a bit that flips in any byte of kernels.sqlite is noticed") {
  const Fixture f(write_tiny_trace);
  flip_bits(f, "kernels.sqlite", true);  // one bit of each byte: it is long, and one checksum covers all of it
}

TEST_CASE("Damaged trace: everything but the content of segments is checked when a trace is opened") {
  const Fixture f;
  for (const char* name : {"manifest.json", "journal.jsonl", "seal.json", "kernels.sqlite"}) {
    const std::string whole = slurp(f.trace / name);
    std::string damaged = whole;
    damaged[whole.size() / 2] = static_cast<char>(whole[whole.size() / 2] ^ 1);
    write_file(f.trace / name, damaged);
    INFO(name);
    CHECK_THROWS_AS(TraceReader::open(f.trace), Error);
    write_file(f.trace / name, whole);
  }
}

TEST_CASE("Damaged trace: a missing file is named") {
  const Fixture f;
  for (const std::string& name : kFiles) {
    const std::string whole = slurp(f.trace / name);
    fs::remove(f.trace / name);
    INFO(name);
    CHECK(outcome(f) == "refused");
    const std::string said = name == "seal.json" ? "seal" : name.starts_with("segments") ? "segment " : name;
    CHECK(refusal(f.trace).find(said) != std::string::npos);
    write_file(f.trace / name, whole);
  }
}

TEST_CASE("Damaged trace: appended bytes, zero-filled tails, text-mode damage and doubled files are refused") {
  const Fixture f;
  for (const std::string& name : kFiles) {
    const std::string whole = slurp(f.trace / name);
    std::string zero_tail = whole;
    std::fill(zero_tail.end() - static_cast<std::ptrdiff_t>(whole.size() / 3), zero_tail.end(), '\0');
    std::string crlf;
    for (const char c : whole) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
    for (const std::string& damaged :
         {whole + "x", whole + std::string(4096, '\0'), zero_tail, whole + whole, std::string()}) {
      write_file(f.trace / name, damaged);
      INFO(name << " of " << damaged.size() << " bytes");
      CHECK(outcome(f) == "refused");
      if (damaged.size() != whole.size())
        CHECK_THROWS_AS(TraceReader::open(f.trace), Error);  // at once, not when it is read
    }
    write_file(f.trace / name, crlf);
    const std::string result = outcome(f);
    // Line ends mean nothing inside the seal; elsewhere the checksum sees them, where there are any.
    CHECK((result == "refused" || name == "seal.json" || crlf == whole));
    write_file(f.trace / name, whole);
  }
}

TEST_CASE("Damaged trace: swapped, doubled and foreign segments are refused") {
  const Fixture f;
  const auto segment = [&](int i) { return f.trace / ("segments/0000" + std::to_string(i) + ".safetensors"); };
  const std::string second = slurp(segment(1));
  const std::string third = slurp(segment(2));
  write_file(segment(1), third);
  write_file(segment(2), second);
  CHECK(outcome(f) == "refused");
  write_file(segment(1), second);
  CHECK(outcome(f) == "refused");
  // A segment of another run, intact by itself.
  TraceManifest m = small_manifest();
  TraceWriter writer(f.folder.path() / "other.kvt", m, 512);
  small_step(writer, m, 0);
  for (std::uint32_t step = 1; step < kSmallSteps; ++step) {
    if (step == 3) writer.add_eviction({7, step, 1, 0, 0});
    small_step(writer, m, step);
  }
  writer.seal();
  write_file(segment(2), slurp(f.folder.path() / "other.kvt/segments/00002.safetensors"));
  CHECK(outcome(f) == "refused");
  CHECK_THROWS_AS(TraceReader::open(f.trace), Error);  // its length differs, which is seen at once
  write_file(segment(2), third);
  CHECK(outcome(f) == "same");
}

TEST_CASE(
    "Damaged trace: the message says which segment, what was expected, how many steps are intact, and what to do") {
  const Fixture f;
  const fs::path segment = f.trace / "segments/00001.safetensors";
  std::string bytes = slurp(segment);
  bytes[bytes.size() - 20] = static_cast<char>(bytes[bytes.size() - 20] ^ 1);
  write_file(segment, bytes);
  try {
    everything(TraceReader::open(f.trace));
    FAIL("accepted");
  } catch (const Error& e) {
    const std::string why = e.what();
    CHECK(why.find("run.kvt: segment 1: checksum ") != std::string::npos);
    CHECK(why.find(", expected ") != std::string::npos);
    CHECK(why.ends_with("; 1 step is intact"));
    REQUIRE(e.notes().size() == 1);
    CHECK(e.notes()[0].find("kvroof inspect --repair") != std::string::npos);
  }
  const TraceReport report = inspect_trace(f.trace, true);
  CHECK(report.sealed);
  CHECK_FALSE(report.intact);
  CHECK(report.segments == 3);
  CHECK(report.intact_segments == 1);
  CHECK(report.intact_steps == 1);
  REQUIRE(report.problems.size() == 1);
  CHECK(report.problems[0].starts_with("segment 1 (steps 1..2): checksum "));
}

TEST_CASE("Damaged trace: a segment that was cut is named with both lengths") {
  const Fixture f;
  REQUIRE(truncate((f.trace / "segments/00002.safetensors").c_str(), 1000) == 0);
  CHECK(refusal(f.trace).find("segment 2 (steps 3..5): 1000 bytes, expected 1668; 3 steps are intact") !=
        std::string::npos);
}

TEST_CASE("Damaged trace: a newer version is refused with the version that is needed") {
  const Fixture f;
  std::string manifest = slurp(f.trace / "manifest.json");
  manifest.replace(manifest.find("\"format_version\": 1"), 19, "\"format_version\": 3");
  write_file(f.trace / "manifest.json", manifest);
  CHECK(refusal(f.trace).find("a kvroof that knows version 3 is needed") != std::string::npos);
  CHECK_THROWS_AS(repair_trace(f.trace), Error);
  CHECK(slurp(f.trace / "manifest.json") == manifest);
}

TEST_CASE("Damaged trace: what is not a trace is refused without a stack of consequences") {
  const TemporaryFolder folder;
  const auto code = [](const fs::path& path) {
    try {
      TraceReader::open(path);
    } catch (const Error& e) {
      return e.code();
    }
    return ExitCode::kOk;
  };
  CHECK(code(folder.path() / "absent.kvt") == ExitCode::kFailure);
  write_file(folder.path() / "file.kvt", "x");
  CHECK(code(folder.path() / "file.kvt") == ExitCode::kFailure);
  fs::create_directory(folder.path() / "empty.kvt");
  CHECK(code(folder.path() / "empty.kvt") == ExitCode::kDamagedTrace);
  CHECK_THROWS_AS(repair_trace(folder.path() / "empty.kvt"), Error);
}

TEST_CASE("Damaged trace: a file that changes while the trace is open is noticed") {
  const Fixture f;
  const TraceReader reader = TraceReader::open(f.trace);
  const fs::path segment = f.trace / "segments/00002.safetensors";
  REQUIRE(truncate(segment.c_str(), 700) == 0);
  CHECK_NOTHROW(reader.keys_values(7, LayerId(0)));  // ends before the last segment
  CHECK_THROWS_AS(reader.keys_values(0, LayerId(0)), Error);
}
