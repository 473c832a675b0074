// kvroof analyze as a user types it: its tables, JSON, CSV, its folder, its refusals.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

namespace fs = std::filesystem;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

const std::string kGolden =
    std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";

// Imported tensors of 8 query heads in one layer; the rest of the 64 tokens counts as decoded.
struct Imported {
  TemporaryFolder folder;
  std::string path = folder.file("x.kvt");
  explicit Imported(int prompt = 24) {
    const Ran ran = run_program("import qkv " + kGolden + " --prompt " + std::to_string(prompt) + " -o " + path);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
  }
};

Ran analyze_ok(const std::string& words) {
  Ran ran = run_program("analyze " + words);
  INFO(words << "\n" << ran.err);
  REQUIRE(ran.code == 0);
  return ran;
}

void check_refused(const std::string& words, int code, const std::string& expected) {
  const Ran ran = run_program("analyze " + words);
  INFO(words << "\nstdout: " << ran.out << "\nstderr: " << ran.err);
  CHECK(ran.code == code);
  CHECK(ran.out.empty());
  CHECK(ran.err.starts_with("error: "));
  CHECK_THAT(ran.err, ContainsSubstring(expected));
}

}  // namespace

TEST_CASE("analyze prints a finding, a table and a source for each analysis") {
  const Imported x;
  const Ran ran = analyze_ok(x.path);
  for (const char* expected :
       {"Attention mass of the top tokens (mass)", "90 % of a step's attention lies on",
        "Keyformer (Adnan et al. 2024)", "Sparsity of attention (sparsity)", "below 1 % of the step's maximum",
        "Persistence of importance (persistence)", "Heavy-hitter overlap over time (heavy-hitters)",
        "Entropy of attention (entropy)", "Power law of accumulated attention (power-law)",
        "Reuse distance and survival (reuse)", "Attention change ratio (change-ratio)",
        "Recency and attention sinks (recency)", "What policies keep (policy)", "window:budget=0.5: recall",
        "Output error beside its bound (bound)"}) {
    INFO(expected);
    CHECK_THAT(ran.out, ContainsSubstring(expected));
  }
  CHECK(analyze_ok(x.path + " --all").out == ran.out);
  CHECK(analyze_ok(x.path + " --threads 1").out == analyze_ok(x.path + " --threads 3").out);
}

TEST_CASE("analyze gives JSON with values by layer and head, and CSV with a row for each") {
  const Imported x;
  const json answer = json::parse(analyze_ok(x.path + " sparsity,mass --format json").out);
  REQUIRE(answer["analyses"].size() == 2);
  const json& sparsity = answer["analyses"][0];
  CHECK(sparsity["name"] == "sparsity");
  CHECK(sparsity["measures"][0]["key"] == "below_1_percent_of_max");
  CHECK(sparsity["measures"][0]["unit"] == "share");
  REQUIRE(sparsity["measures"][0]["by_layer_and_head"].size() == 1);
  CHECK(sparsity["measures"][0]["by_layer_and_head"][0].size() == 8);
  const json& chart = answer["analyses"][1]["charts"][0];
  CHECK(chart["lines"][0]["y"].size() == chart["x"].size());
  CHECK(chart["lines"][0]["y"].back().get<double>() == Approx(1));
  CHECK(answer["manifest"]["trace"]["layers"] == 1);

  std::istringstream csv(analyze_ok(x.path + " sparsity --format csv").out);
  std::string line;
  std::getline(csv, line);
  CHECK(line == "analysis,measure,layer,head,value");
  int rows = 0;
  while (std::getline(csv, line)) {
    CHECK(line.starts_with("sparsity,below_"));
    ++rows;
  }
  CHECK(rows == 2 * 8);
}

TEST_CASE("analyze -o writes data, pictures and a page, and never over what is there") {
  const Imported x;
  const std::string out = x.folder.file("out");
  const Ran ran = analyze_ok(x.path + " mass,entropy -o " + out + "/");
  CHECK_THAT(ran.out, ContainsSubstring("Entropy of attention"));
  for (const char* name : {"mass.json", "mass.csv", "mass-lines.csv", "mass-cdf.svg", "mass-map.svg", "entropy.json",
                           "entropy.csv", "entropy-map.svg", "index.html"}) {
    INFO(name);
    CHECK(fs::file_size(fs::path(out) / name) > 100);
  }
  CHECK(json::parse(std::ifstream(out + "/mass.json"))["name"] == "mass");
  CHECK_THAT(slurp(out + "/index.html"), ContainsSubstring(slurp(out + "/mass-cdf.svg")));
  check_refused(x.path + " mass -o " + out, 2, "is there already");
  check_refused(x.path + " mass -o " + x.folder.file("none") + "/deep/out", 1, "cannot be made");
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(x.folder.path())) ++entries;
  CHECK(entries == 2);  // the trace and the folder: nothing half-written stays
}

TEST_CASE("policies without a budget are analysed at half of the prompt, those with one at theirs") {
  const Imported x;
  const std::string half = analyze_ok(x.path + " policy --policy h2o --budget 0.5").out;
  CHECK(analyze_ok(x.path + " policy --policy h2o").out == half);
  CHECK(analyze_ok(x.path + " policy --policy h2o:budget=0.5").out == half);
  const std::string both = analyze_ok(x.path + " policy --policy h2o,window:budget=9").out;
  CHECK_THAT(both, ContainsSubstring("h2o:budget=0.5"));
  CHECK_THAT(both, ContainsSubstring("window:budget=9"));
}

TEST_CASE("analyze answers a mistake in one sentence") {
  const Imported x;
  check_refused(x.path + " sparcity", 2, "unknown analysis 'sparcity'; did you mean sparsity?");
  check_refused(x.path + " mass --all", 2, "exclude each other");
  check_refused(x.path + " mass --layers 3..9", 2, "layers 0..0");
  check_refused(x.path + " mass --layers 0..x", 2, "--layers");
  check_refused(x.path + " mass --policy h2o --budget 0.5", 2, "--policy is of the analysis `policy`");
  check_refused(x.path + " mass,bound --budget 0.5", 2, "--budget is of the analysis `policy`");
  check_refused(x.path + " policy --policy h3o --budget 0.5", 2, "h2o");
  check_refused(x.folder.file("absent.kvt"), 1, "absent.kvt");
  const Imported prompt_only(104);
  check_refused(prompt_only.path, 1, "no token was decoded");
  fs::remove(fs::path(x.path) / "manifest.json");
  check_refused(x.path, 4, "x.kvt");
}

TEST_CASE("a range of layers ends with the last one that there is, and says so") {
  const Imported x;
  const Ran ran = analyze_ok(x.path + " mass --layers 0..7");
  CHECK(ran.err == "note: --layers 0..7: the trace has layers 0 to 0; analysed are 0..0\n");
  CHECK(analyze_ok(x.path + " mass --layers 0..0").err.empty());
}
