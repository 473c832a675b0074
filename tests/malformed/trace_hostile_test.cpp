// Hostile traces: every checksum is right, the content is not. A reader checks each number before it uses it.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "sim/core/files.hpp"
#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/checksum.hpp"
#include "traces/journal.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

struct Tensor {
  std::string name;
  DType type;
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> data;
};

// A segment in memory, to be changed and written back.
struct Segment {
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;

  explicit Segment(const fs::path& path) {
    const SafetensorsFile file = SafetensorsFile::open(path).or_throw(path.string());
    metadata = file.header().metadata;
    for (const TensorInfo& t : file.header().tensors) {
      Tensor tensor{t.name, t.type, t.shape, std::vector<std::byte>(t.bytes)};
      file.read(t, 0, tensor.data);
      if (t.name != "checksum") tensors.push_back(tensor);
    }
  }
  Tensor& at(const std::string& name) {
    for (Tensor& t : tensors) {
      if (t.name == name) return t;
    }
    throw std::runtime_error("no tensor " + name);
  }
  void erase(const std::string& name) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  }
  // One number inside an integer tensor.
  template <class T>
  void set(const std::string& name, std::size_t index, T value) {
    std::memcpy(at(name).data.data() + index * sizeof(T), &value, sizeof(T));
  }
  void write(const fs::path& path, bool self_checksum) const {
    std::vector<TensorToWrite> list;
    for (const Tensor& t : tensors) list.push_back({t.name, t.type, t.shape, t.data});
    write_safetensors(path, list, metadata, {.self_checksum = self_checksum});
  }
};

// Writes journal and seal again so that they vouch for whatever the segments hold now.
void reseal(const fs::path& trace) {
  const Journal journal = parse_journal(slurp(trace / "journal.jsonl"));
  std::string text;
  Seal seal;
  for (JournalLine line : journal.lines) {
    const OpenFile file = open_file(trace / segment_file(line.segment)).or_throw("segment");
    line.bytes = file.size;
    line.xxh3 = file_xxh3(file, file.size).or_throw("segment");
    text += journal_line_to_json(line);
    seal.segments += 1;
    seal.steps += line.steps;
    seal.bytes += line.bytes;
  }
  write_file(trace / "journal.jsonl", text);
  write_seal(trace, seal);
}

// What a reader says to the small trace after `change` was made to its second segment (steps 1 and 2).
std::string answer(const std::function<void(Segment&)>& change, bool self_checksum = true) {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_small_trace(trace);
  const fs::path path = trace / segment_file(1);
  Segment segment(path);
  change(segment);
  segment.write(path, self_checksum);
  reseal(trace);
  try {
    everything(TraceReader::open(trace));
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kDamagedTrace);
    const std::string why = e.what();
    return why.substr(why.find("segment 1"));
  }
  return "accepted";
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("Hostile trace: content that stays within the format is accepted") {
  CHECK(answer([](Segment&) {}) == "accepted");
  CHECK(answer([](Segment&) {}, false) == "accepted");  // of a writer that leaves out the checksum tensor
  CHECK(answer([](Segment& s) { s.tensors.push_back({"x-note", DType::kU8, {3}, std::vector<std::byte>(3)}); }) ==
        "accepted");
  CHECK(answer([](Segment& s) { s.metadata["x"] = "y"; }) == "accepted");
  CHECK(answer([](Segment& s) { std::reverse(s.tensors.begin(), s.tensors.end()); }) == "accepted");
}

TEST_CASE("Hostile trace: tensors that the format does not know are refused, not skipped") {
  const auto with = [](const std::string& name) {
    return answer([&](Segment& s) { s.tensors.push_back({name, DType::kU8, {1}, std::vector<std::byte>(1)}); });
  };
  for (const char* name : {"s0.l0.z", "s0.l2.q", "s1.l0.q", "s0.l00.q", "S0.ids", "note", ""}) {
    says(with(name), "unknown tensor '" + std::string(name) + "'");
  }
}

TEST_CASE("Hostile trace: types and shapes are those of the manifest") {
  says(answer([](Segment& s) { s.at("s0.l0.q").type = DType::kF16; }),
       "tensor 's0.l0.q' is F16 [2, 4, 4], expected BF16 [2, 4, 4]");
  says(answer([](Segment& s) { s.at("s0.l0.q").shape = {2, 2, 8}; }), "is BF16 [2, 2, 8], expected BF16 [2, 4, 4]");
  says(answer([](Segment& s) { s.at("s0.l0.q").shape = {32}; }), "is BF16 [32], expected BF16 [32, 4, 4]");
  says(answer([](Segment& s) { s.at("s7.l1.v").shape = {1, 1, 4}; }), "tensor 's7.l1.v' is BF16 [1, 1, 4]");
  says(answer([](Segment& s) { s.at("s0.ids").shape = {1, 2}; }), "tensor 's0.ids' is I64 [1, 2], expected I64 [1]");
  says(answer([](Segment& s) { s.at("steps").shape = {1, 18}; }), "tensor 'steps' is I64 [1, 18], expected I64 [1, 9]");
  says(answer([](Segment& s) { s.at("s0.ids") = {"s0.ids", DType::kI64, {}, std::vector<std::byte>(8)}; }),
       "tensor 's0.ids' is I64 []");
}

TEST_CASE("Hostile trace: every layer has q, k and v of the same rows") {
  says(answer([](Segment& s) { s.erase("s0.l0.v"); }),
       "s0.l0.q, s0.l0.k and s0.l0.v do not have the same number of rows");
  says(answer([](Segment& s) { s.at("s0.l0.k") = {"s0.l0.k", DType::kBF16, {3, 2, 4}, std::vector<std::byte>(48)}; }),
       "do not have the same number of rows");
  says(answer([](Segment& s) {
         for (const char* name : {"s0.l1.q", "s0.l1.k", "s0.l1.v"}) s.erase(name);
       }),
       "layer 1 has 0 rows");
  says(answer([](Segment& s) { s.erase("s0.ids"); }), "s0.ids and s0.logprobs do not have the same number of tokens");
}

TEST_CASE("Hostile trace: numbers in the metadata are whole, in range, and continue the segment before") {
  const auto with = [](const std::string& key, const std::string& value) {
    return answer([&](Segment& s) { s.metadata[key] = value; });
  };
  says(with("s0.first_row", "4"), "sequence 0 starts at row 4, expected 3");
  says(with("s0.first_row", "2"), "sequence 0 starts at row 2, expected 3");
  says(with("s7.first_id", "0"), "the ids of sequence 1 start at 0, expected 2");
  for (const char* value : {"-3", "3.0", "3 ", " 3", "", "16777216", "99999999999999999999999999", "0x3", "3\n"}) {
    says(with("s0.first_row", value), "__metadata__: s0.first_row is '");
  }
  says(with("segment", "2"), "it says that it is segment 2");
  says(with("first_step", "0"), "it starts at step 0, expected 1");
  says(with("steps", "3"), "the tensor 'steps' does not hold the 3 steps");
  says(with("format", "kvroof-trace-2"), "not a segment of format kvroof-trace-1");
  says(answer([](Segment& s) { s.metadata.erase("s0.first_row"); }), "unknown tensor");
}

TEST_CASE("Hostile trace: numbers inside the tensors are in range") {
  says(answer([](Segment& s) { s.set<std::int64_t>("steps", 0, 7); }), "its steps are out of order");
  says(answer([](Segment& s) { s.set<std::int64_t>("steps", 1, 2); }), "a number out of range in 'steps'");
  says(answer([](Segment& s) { s.set<std::int64_t>("steps", 4, -1); }), "a negative count in 'steps'");
  says(answer([](Segment& s) { s.set<std::int32_t>("s0.l0.evictions", 0, -1); }), "is out of range");
  says(answer([](Segment& s) { s.set<std::int32_t>("s0.l0.evictions", 1, 4); }), "head 4, position 0 is out of range");
  says(answer([](Segment& s) { s.set<std::int32_t>("s0.l0.evictions", 2, 8); }), "head 1, position 8 is out of range");
  says(answer([](Segment& s) { s.set<std::int32_t>("s0.l0.evictions", 2, -2147483647); }), "is out of range");
}

TEST_CASE("Hostile trace: the manifest's token counts are those of the segments") {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_small_trace(trace);
  std::string manifest = slurp(trace / "manifest.json");
  manifest.replace(manifest.find("\"tokens\": 8"), 11, "\"tokens\": 16777216");
  write_file(trace / "manifest.json", manifest);
  reseal(trace);
  try {
    TraceReader::open(trace);
    FAIL("accepted");
  } catch (const Error& e) {
    says(e.what(), "sequence 0 has 8 recorded tokens, the manifest says 16777216");
  }
}

TEST_CASE("Hostile trace: a kernels.sqlite that is no database, or lacks steps, is refused") {
  for (const std::string& content : {std::string("SQLite format 3, or so it says"), std::string(8192, '\0')}) {
    TemporaryFolder folder;
    const fs::path trace = folder.path() / "run.kvt";
    write_small_trace(trace);
    write_file(trace / "kernels.sqlite", content);
    reseal(trace);
    CHECK_THROWS_AS(TraceReader::open(trace).steps(), Error);
  }
}

TEST_CASE("Hostile trace: files that are folders, pipes or links out of the trace give an error") {
  for (const char* name :
       {"manifest.json", "journal.jsonl", "seal.json", "kernels.sqlite", "segments/00001.safetensors"}) {
    TemporaryFolder folder;
    const fs::path trace = folder.path() / "run.kvt";
    write_small_trace(trace);
    fs::remove(trace / name);
    fs::create_directory(trace / name);
    CHECK_THROWS_AS(everything(TraceReader::open(trace)), Error);
    fs::remove(trace / name);
    REQUIRE(mkfifo((trace / name).c_str(), 0600) == 0);
    CHECK_THROWS_AS(everything(TraceReader::open(trace)), Error);
    fs::remove(trace / name);
    fs::create_symlink("/dev/zero", trace / name);
    CHECK_THROWS_AS(everything(TraceReader::open(trace)), Error);
  }
}
