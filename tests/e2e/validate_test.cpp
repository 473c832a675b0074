// The scoreboard of published measurements, held to what is claimed of it.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/published.hpp"
#include "sim/model/model_shape.hpp"
#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "traces/writer.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

const std::string kShipped = std::string(KVROOF_SOURCE_DIR) + "/validation/published.csv";

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The rows with other values, as a file: `value` is the 18th column of the 21.
std::string with_values(const std::string& name, const std::string& value) {
  std::istringstream in(text_of(kShipped));
  const std::string path = (std::filesystem::temp_directory_path() / name).string();
  std::ofstream out(path, std::ios::binary);
  std::string line;
  std::getline(in, line);
  out << line << "\n";
  while (std::getline(in, line)) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    REQUIRE(fields.size() == 21);
    fields[17] = value;
    for (std::size_t i = 0; i < fields.size(); ++i) out << (i > 0 ? "," : "") << fields[i];
    out << "\n";
  }
  return path;
}

// A recording of steps alone: a prompt of 16 tokens, and decode steps that took so long.
void write_steps(const std::string& run, const std::vector<std::uint64_t>& decode_ms) {
  kvroof::TraceManifest manifest;
  manifest.tool_version = "0.0-test";
  manifest.source = "profile";
  manifest.backend = "cuda";
  manifest.model_shape_json = kvroof::shape_to_json(
      kvroof::find_model_shape("tinyllama-1.1b", std::string(KVROOF_SOURCE_DIR) + "/catalog"));
  kvroof::TraceWriter writer(run, manifest);
  kvroof::StepRecord prompt{0, "prefill", 1, 1, 1000001, {}};
  prompt.bytes.add(kvroof::Cause::kKvWrite, 16 * 22 * 4 * 2 * 64 * 4);  // 16 tokens, 22 layers, 4 heads, f32
  writer.end_step(prompt);
  std::uint32_t step = 1;
  for (const std::uint64_t ms : decode_ms) {
    writer.end_step(kvroof::StepRecord{step++, "decode", 1, 1, 1 + 1000000 * ms, {}});
  }
  writer.seal();
}

}  // namespace

TEST_CASE("published times and memory are met as closely as the README says, and intervals hold what they claim") {
  const Ran ran = run_program("validate");
  INFO(ran.out);
  CHECK(ran.code == 0);
  CHECK(ran.out.find("MISSED") == std::string::npos);
  CHECK(ran.out.find("met     ") != std::string::npos);
}

TEST_CASE("the coverage that a gate holds is that of the groups printed with the same rows left out") {
  for (const auto& [left_out, name] : {std::pair{"table", "their table left out"},
                                       std::pair{"device-engine", "their device under their engine left out"}}) {
    const Ran ran = run_program(std::string("validate --format json --leave-out ") + left_out);
    double rows = 0, inside = 0;
    for (const json& group : json::parse(ran.out)) {
      rows += group["rows"].get<double>();
      inside += group["rows"].get<double>() * group["covered80"].get<double>();
    }
    const std::size_t end = ran.err.find(std::string("  share of rows inside 80 % intervals, ") + name);
    REQUIRE(end != std::string::npos);
    const std::size_t begin = ran.err.rfind('\n', end) + 1;
    CHECK(std::abs(std::stod(ran.err.substr(begin + 6)) - inside / rows) < 6e-4);  // after "met   "
  }
  CHECK(run_program("validate --leave-out gpu").err.find("expected nothing, table, device") != std::string::npos);
  CHECK(run_program("validate --leave-out device --rows " + kShipped).code == 2);
}

TEST_CASE("validate prints each run of the papers, what was fitted on full attention, and both errors") {
  const Ran ran = run_program("validate --papers");
  INFO(ran.out);
  CHECK(ran.code == 0);
  CHECK(ran.out.find("MISSED") == std::string::npos);
  CHECK(ran.out.find("fitted on full attention alone") != std::string::npos);
  CHECK(ran.out.find("of the policies'") != std::string::npos);
  const json rows = json::parse(run_program("validate --papers --format json").out);
  int keyformer = 0;
  for (const json& row : rows) keyformer += row["figure"] == "Table 1" && row["paper"] == "keyformer" ? 1 : 0;
  CHECK(keyformer == 10);
  CHECK(run_program("validate --papers --rows " + kShipped).code == 2);
}

TEST_CASE("at least 95 of 100 shipped rows are predicted, and the others say why not") {
  const Ran ran = run_program("validate --rows " + kShipped + " --format json");
  REQUIRE(ran.code == 0);
  const json rows = json::parse(ran.out)["rows"];
  REQUIRE(rows.size() == 1996);
  int predicted = 0;
  for (const json& row : rows) {
    CHECK(row["unsupported"].is_null() == row["predicted"].is_number());
    if (!row["predicted"].is_number()) {
      CHECK(row["unsupported"].get<std::string>().size() > 10);
      continue;
    }
    ++predicted;
    CHECK(row["low95"] <= row["low80"]);
    CHECK(row["low80"] <= row["predicted"]);
    CHECK(row["predicted"] <= row["high80"]);
    CHECK(row["high80"] <= row["high95"]);
  }
  CHECK(predicted >= 1660);
}

// What `validate --rows` says of a file but for what is of the measured values themselves.
std::string predictions_of(const std::string& rows) {
  auto all = nlohmann::ordered_json::parse(run_program("validate --format json --rows " + rows).out);
  for (auto& row : all["rows"]) {
    REQUIRE(row.erase("measured") == 1);
    REQUIRE(row.erase("error") == 1);
  }
  return all.dump(1);
}

TEST_CASE("predictions and intervals do not change by a byte when the values of the rows do") {
  const std::string rows = predictions_of(kShipped);
  CHECK(rows.size() > 100000);
  CHECK(predictions_of(with_values("kvroof-blank.csv", "")) == rows);
  CHECK(predictions_of(with_values("kvroof-same.csv", "17")) == rows);
}

TEST_CASE("the scoreboards of the documents are what validate computes now") {
  const kvroof::test::TemporaryFolder folder;
  const std::string copy = folder.file("copy.md");
  for (const std::string document : {"README.md", "validation/SCOREBOARD.md"}) {
    const std::string path = std::string(KVROOF_SOURCE_DIR) + "/" + document;
    std::ofstream(copy, std::ios::binary) << text_of(path);
    const Ran ran = run_program("validate --readme " + copy);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    INFO("run `kvroof validate --readme " << document << "`");
    CHECK(text_of(copy) == text_of(path));
    CHECK(text_of(copy).find("Known to fail") != std::string::npos);
  }
}

TEST_CASE("a document without marks for the scoreboard is refused and left as it is") {
  const kvroof::test::TemporaryFolder folder;
  const std::string copy = folder.file("copy.md");
  std::ofstream(copy, std::ios::binary) << "no marks\n";
  CHECK(run_program("validate --readme " + copy).code == 1);
  CHECK(text_of(copy) == "no marks\n");
  CHECK(run_program("validate --readme " + folder.file("none.md")).code == 2);
  CHECK(run_program("validate --papers --readme " + copy).code == 2);
}

TEST_CASE("a run that was recorded on a CPU is not set beside the prediction for a GPU") {
  const kvroof::test::TemporaryFolder folder;
  const std::string run = folder.file("run.kvt");
  REQUIRE(run_program(std::string("record --model ") + KVROOF_SOURCE_DIR +
                      "/models/demo --ids \"5 17\" --max-tokens 4 --backend fast --quiet -o " + run).code == 0);
  const Ran ran = run_program("validate " + run + " --device h200");
  CHECK(ran.code == 2);
  CHECK(ran.err.find("recorded on a CPU (backend fast), but h200 is a GPU") != std::string::npos);
}

TEST_CASE("the median of an even number of recorded steps is the mean of the two in the middle") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run.kvt");
  write_steps(run, {9, 1, 4, 2});
  const Ran ran = run_program("validate " + run + " --device h200 --format json");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(json::parse(ran.out)[0]["measured_ms"].get<double>() == Approx((2 + 4) / 2.0));
}

TEST_CASE("what recording costs is said of a run whose queries, keys and values were captured, and of no other") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run.kvt");
  write_steps(run, {9, 1});
  CHECK(run_program("validate " + run + " --device h200").err == "bytes of each step as the engine counted them\n");
}

TEST_CASE("a run of one new token has no decode step to compare, which is said") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run.kvt");
  write_steps(run, {});
  const Ran ran = run_program("validate " + run + " --device h200");
  CHECK(ran.code == 2);
  CHECK(ran.err == "error: " + run + ": the run has no decode step to compare: its prompt gives the first new token\n"
                   "note: `kvroof record --max-tokens 128` makes some\n");
}

TEST_CASE("who has no file of the machine that ran is told how to make one") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run.kvt");
  REQUIRE(run_program("record --model demo --prompt Hello --max-tokens 4 -q -o " + run).code == 0);
  for (const char* device : {"", " --device cpu"}) {
    const Ran ran = run_program("validate " + run + device);
    CHECK(ran.code == 2);
    CHECK(ran.err.find("note: `kvroof calibrate -o F.yaml` makes such a file of this machine's GPU, with --backend cpu "
                       "of its CPU") != std::string::npos);
  }
}

TEST_CASE("the example of a file of rows is predicted, and each of its columns is explained, and named by the help") {
  const std::string text = text_of(std::string(KVROOF_SOURCE_DIR) + "/validation/ROWS.md");
  std::string rows;
  std::istringstream lines(text.substr(text.find("    row_id")));
  for (std::string line; std::getline(lines, line);) rows += line.substr(4) + "\n";
  const std::string path = (std::filesystem::temp_directory_path() / "kvroof-example-rows.csv").string();
  std::ofstream(path) << rows;
  const Ran ran = run_program("validate --format json --rows " + path);
  std::filesystem::remove(path);
  REQUIRE(ran.code == 0);
  const json predicted = json::parse(ran.out)["rows"];
  REQUIRE(predicted.size() == 2);
  for (const json& row : predicted) CHECK(row["unsupported"].is_null());
  const std::string help = run_program("help validate").out;
  std::istringstream header(rows.substr(0, rows.find('\n')));
  for (std::string column; std::getline(header, column, ',');) {
    INFO(column);
    CHECK(text.find("`" + column + "`") != std::string::npos);
    CHECK(help.find(column) != std::string::npos);
  }
}

TEST_CASE("a file of rows that is none is refused") {
  CHECK(run_program("validate --rows nothing.csv").err.find("nothing.csv: cannot open: No such file") !=
        std::string::npos);
  const Ran folder = run_program(std::string("validate --rows ") + KVROOF_SOURCE_DIR);
  CHECK(folder.code == 2);
  CHECK(folder.err.find("a folder, expected a file") != std::string::npos);
  CHECK(run_program(std::string("validate --rows ") + KVROOF_SOURCE_DIR + "/README.md").code == 2);
}
