// kvroof eval --task needle: keys hidden in a text, where policies lose them, and what is refused.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/tokenizer/tokenizer.hpp"
#include "tests/catch.hpp"
#include "tests/support/json_lines.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;
using nlohmann::json;

namespace {

const std::string kDemo = std::string(KVROOF_SOURCE_DIR) + "/models/demo";
const std::string kWords = "eval --format json --quiet --model " + kDemo + " --text " + kDemo +
                           "/held-out.txt --task needle --context 200,300 ";

json rows_of(const std::string& words) {
  const Ran ran = run_program(kWords + words);
  INFO(words << ": " << ran.err);
  REQUIRE(ran.code == 0);
  return json::parse(ran.out);
}

double found_at(const json& row, const std::string& depth) { return row["found_at_" + depth].get<double>(); }

}  // namespace

TEST_CASE("A window finds the keys behind which it begins as full attention does, and none before") {
  const json rows = rows_of("--policy window --budget 0.4,400 --depth 0,0.3,0.80,0.8,1 --keys 3");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["examples"] == 2 * 4 * 3);
  CHECK(found_at(rows[0], "1") > 0.5);
  for (const char* depth : {"0", "0.3"}) CHECK(found_at(rows[1], depth) == 0);
  // Whatever is read there besides the key may be gone.
  for (const char* depth : {"0.8", "1"}) {
    CHECK(found_at(rows[1], depth) == Approx(found_at(rows[0], depth)).margin(0.17));
  }
  CHECK(rows[1]["found"] < rows[0]["found"]);
  for (const char* key : {"found", "nats_per_token", "found_at_0"}) CHECK(rows[2][key] == rows[0][key]);  // all fits
}

TEST_CASE("What is found has an error of its own, and its change that of the keys that both found or one alone") {
  const TemporaryFolder folder;
  const std::string words = "--policy window --budget 0.4 --depth 0.3,1 --keys 3 ", details = folder.file("details");
  const json rows = rows_of(words + "--details " + details);
  std::vector<std::vector<double>> found(2);  // of each policy, key by key
  const auto lines = json_lines_of(details);
  REQUIRE(lines.size() == 24);
  for (std::size_t i = 0; i < lines.size(); ++i) found[i / 12].push_back(lines[i]["found"] == true ? 1 : 0);
  for (std::size_t p = 0; p < 2; ++p) {
    double sum = 0, change = 0, squares = 0;
    for (std::size_t i = 0; i < 12; ++i) {
      sum += found[p][i];
      change += (found[p][i] - found[0][i]) / 12;
    }
    for (std::size_t i = 0; i < 12; ++i) squares += std::pow(found[p][i] - found[0][i] - change, 2);
    CHECK(rows[p]["found"].get<double>() == Approx(sum / 12));
    CHECK(rows[p]["found_change"].get<double>() == Approx(change).margin(1e-12));
    CHECK(rows[p]["found_standard_error"].get<double>() == Approx(std::sqrt(sum / 12 * (1 - sum / 12) / 11)));
    CHECK(rows[p]["found_change_standard_error"].get<double>() == Approx(std::sqrt(squares / 11 / 12)));
  }
  CHECK(rows[1]["found_change_standard_error"] > 0);
  const Ran table = run_program("eval" + kWords.substr(kWords.find(" --quiet")) + words);
  const auto spread = [&](const std::string& before, const char* key) {
    return before + fmt::format(" ±{:.3f}", 1.96 * rows[1][key].get<double>());
  };
  CHECK(table.out.find(spread(fmt::format("{:.3f}", rows[1]["found"].get<double>()), "found_standard_error")) !=
        std::string::npos);
  CHECK(table.out.find(spread(fmt::format("{:+.3f}", rows[1]["found_change"].get<double>()),
                              "found_change_standard_error")) != std::string::npos);
}

TEST_CASE("A key is found exactly when a greedy answer to text, needle, text and question says it") {
  const TemporaryFolder folder;
  const std::string details = folder.file("details");
  rows_of("--depth 0.25,1 --keys 2 --details " + details);
  const Tokenizer tokenizer = Tokenizer::load(kDemo + "/tokenizer.json");
  const auto text = tokenizer.encode(slurp(kDemo + "/held-out.txt"), false);
  const auto lines = json_lines_of(details);
  REQUIRE(lines.size() == 8);
  std::size_t found = 0;
  for (const json& line : lines) {
    const std::string key = line["key"];
    std::vector<std::int64_t> ids = {0};  // begin of text
    const auto needle =
        tokenizer.encode("\nThe pass key is " + key + ". Keep it in mind: the pass key is " + key + ".\n", false);
    const std::size_t hay = line["context"].get<std::size_t>() - 1 - needle.size();
    const auto from = text.begin() + line["text_begin"].get<std::ptrdiff_t>();
    const auto before = line["before"].get<std::ptrdiff_t>();
    // The first key lies where the text begins, the second where it ends.
    CHECK(line["text_begin"] == (&line - lines.data()) % 2 * (text.size() - hay));
    CHECK(before == std::lround(line["depth"].get<double>() * static_cast<double>(hay)));
    ids.insert(ids.end(), from, from + before);
    ids.insert(ids.end(), needle.begin(), needle.end());
    ids.insert(ids.end(), from + before, from + static_cast<std::ptrdiff_t>(hay));
    CHECK(ids.size() == line["context"]);
    const auto question = tokenizer.encode("\nThe pass key is", false);
    ids.insert(ids.end(), question.begin(), question.end());
    std::string words;
    for (const std::int64_t id : ids) words += std::to_string(id) + " ";
    const Ran ran = run_program("run -q --format json --model " + kDemo + " --ids '" + words + "' --max-tokens " +
                                std::to_string(line["tokens"].get<int>()));
    REQUIRE(ran.code == 0);
    const std::string answer = tokenizer.decode(json::parse(ran.out)["ids"].get<std::vector<std::int64_t>>(), true);
    INFO(answer);
    CHECK((answer == " " + key) == line["found"]);
    found += line["found"] == true ? 1 : 0;
  }
  CHECK(found > 0);
  CHECK(found < lines.size());
}

TEST_CASE("What is found of each context and depth is a list in JSON and a column each in CSV") {
  const TemporaryFolder folder;
  const std::string words = "--policy window --budget 0.4 --depth 0.5,1 --keys 3 ", details = folder.file("details");
  const json rows = rows_of(words + "--details " + details);
  std::map<std::string, std::map<std::string, int>> found;
  for (const json& line : json_lines_of(details)) {
    const std::string cell = fmt::format("{} of {}", line["depth"].get<double>(), line["context"].get<int>());
    found[line["policy"]][cell] += line["found"] == true ? 1 : 0;
  }
  for (const json& row : rows) {
    const json cells = row["found_by_context_and_depth"];
    REQUIRE(cells.size() == 4);
    double all = 0;
    for (const json& cell : cells) {
      CHECK(cell["examples"] == 3);
      const std::string name = fmt::format("{} of {}", cell["depth"].get<double>(), cell["context"].get<int>());
      CHECK(cell["found"].get<double>() == Approx(found[row["spec"]][name] / 3.0));
      all += cell["found"].get<double>() / 4;
    }
    CHECK(all == Approx(row["found"].get<double>()));
  }
  const std::string csv = run_program("eval --format csv" + kWords.substr(kWords.find(" --quiet")) + words).out;
  CHECK(csv.find(",found_at_0.5_of_200,found_at_1_of_200,found_at_0.5_of_300,found_at_1_of_300\n") !=
        std::string::npos);
  std::string last;
  for (const json& cell : rows.back()["found_by_context_and_depth"]) {
    last += fmt::format(",{}", cell["found"].get<double>());
  }
  CHECK(csv.ends_with(last + "\n"));
}

TEST_CASE("A policy that is asked in its prompt sees the question before it evicts") {
  const TemporaryFolder folder;
  const std::string words = "--policy snapkv --budget 0.25 --depth 0.5,0.75 --keys 4 ";
  const json without = rows_of(words), with = rows_of(words + "--question-in-prompt --details " + folder.file("d"));
  CHECK(with[0]["nats_per_token"].get<double>() == Approx(without[0]["nats_per_token"].get<double>()).epsilon(1e-3));
  CHECK(with[1]["nats_per_token"].get<double>() < without[1]["nats_per_token"].get<double>() - 0.5);
}

TEST_CASE("The same seed hides the same keys whatever the threads and the batch, another seed others") {
  const std::string words = kWords + "--depth 0.5 --keys 3 --policy h2o:budget=0.5 ";
  const std::string one = run_program(words + "--threads 1 --batch 1").out;
  CHECK(run_program(words + "--threads 3 --batch 8").out == one);
  CHECK(run_program(words + "--threads 1 --batch 1 --seed 1").out != one);
}

TEST_CASE("The picture has a map of depths and contexts for each policy, with the shares of the keys that were found") {
  const TemporaryFolder folder;
  const std::string path = folder.file("found.svg"), details = folder.file("details");
  rows_of("--depth 0,0.5,1 --keys 2 --policy window:budget=0.25 --svg " + path + " --details " + details);
  std::map<std::string, std::map<std::string, int>> percent;  // of each policy and cell
  for (const json& line : json_lines_of(details)) {
    const std::string cell = fmt::format("depth of the needle (%) {}, tokens of the context {}: ",
                                         line["depth"].get<double>() * 100, line["context"].get<int>());
    percent[line["policy"]][cell] += line["found"] == true ? 50 : 0;
  }
  REQUIRE(percent.size() == 2);
  const std::string svg = slurp(path);
  for (const auto& [policy, cells] : percent) {
    CHECK(cells.size() == 6);
    const std::size_t map = svg.find(">" + policy + "<");
    REQUIRE(map != std::string::npos);
    for (const auto& [cell, share] : cells) {
      const std::string found = cell + std::to_string(share) + " %";
      CHECK(svg.compare(svg.find(cell, map), found.size(), found) == 0);
    }
  }
}

TEST_CASE("A needle that cannot be hidden or asked for is refused in a sentence") {
  const auto refused = [](const std::string& words, const std::string& sentence) {
    const Ran ran = run_program("eval --model " + kDemo + " " + words);
    INFO(words << ": " << ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.err.find(sentence) != std::string::npos);
  };
  const std::string text = "--text " + kDemo + "/prompts/sqlite-rbu.txt ";
  const std::string needle = text + "--task needle ";
  refused(needle + "--context 4096", "--context 4096: with question and answer");
  refused(needle + "--context 8", "--context 8: the needle alone has");
  refused("--text " + kDemo + "/prompts/../PROVENANCE.md --task needle --context 4000", "tokens of it, but it has");
  refused(needle + "--needle 'no place for it'", "expected a text with {key}");
  refused(needle + "--depth 0,1.5", "--depth");
  refused(needle + "--keys 0", "--keys");
  refused(needle + "--keys 60000", "--keys 60000: contexts of 460800000 tokens in all, expected at most 134217728");
  refused(needle + "--prompt 0.5", "--prompt belongs to perplexity and --task choice");
  refused(needle + "--stride 5", "--stride belongs to");
  refused(text + "--svg a.svg", "--svg belongs to --task needle");
  refused(text + "--context 100,200", "--context takes one number for perplexity");
  refused(text + "--task neddle", "did you mean");
}
