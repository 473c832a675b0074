// kvroof eval --jsonl with questions behind the prompt: several of one context, before which policies have evicted.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/json_lines.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;
using nlohmann::json;

namespace {

const std::string kModel = std::string("--model ") + KVROOF_SOURCE_DIR + "/models/demo ";
const std::string kContext =
    "CREATE TABLE creates a new, empty table in the current database. The table will be owned by the user who issues "
    "the command. If a schema name is given, the table is created in that schema. Otherwise it is created in the "
    "current schema. Temporary tables exist in a special schema.";
const std::string kFirst = " The name of the table must be", kSecond = " To create a table, you must have";

std::string file_of(const TemporaryFolder& folder, const std::string& name, const json& line) {
  std::ofstream(folder.file(name)) << line.dump() << "\n";
  return "--jsonl " + folder.file(name) + " ";
}

json turns_of(const std::string& context) {
  return {{"context", context},
          {"multi_turns",
           {{{"input", kFirst}, {"answer", "distinct"}}, {{"input", kSecond}, {"answer", "permission"}}}}};
}

struct Evaluated {
  json rows;
  std::vector<json> details;
  std::string notes;
};

Evaluated eval(const TemporaryFolder& folder, const std::string& words) {
  const std::string details = folder.file("details");
  const Ran ran = run_program("eval --format json " + kModel + words + " --details " + details);
  INFO(words << ": " << ran.err);
  REQUIRE(ran.code == 0);
  return {json::parse(ran.out), json_lines_of(details), ran.err};
}

// Ids of the answers, policies one after the other.
std::vector<json> ids_of(const Evaluated& evaluated) {
  std::vector<json> ids;
  for (const json& line : evaluated.details) ids.push_back(line["ids"]);
  return ids;
}

}  // namespace

TEST_CASE("questions that are asked apart have the answers of a line each, behind the prompt or in it") {
  const TemporaryFolder folder;
  const std::string turns = file_of(folder, "t", turns_of(kContext)) + "--questions apart --question '{input}' ";
  const std::string policy = "--policy window:budget=0.3 ";
  std::vector<json> behind, within;
  for (const std::string& question : {kFirst, kSecond}) {
    const json line = {{"prompt", kContext}, {"input", question}, {"answer", "x"}};
    behind.push_back(ids_of(eval(folder, file_of(folder, "l", line) + policy + "--question '{input}'")));
    const json whole = {{"prompt", kContext + question}, {"answer", "x"}};
    within.push_back(ids_of(eval(folder, file_of(folder, "w", whole) + policy)));
  }
  const std::vector<json> apart = ids_of(eval(folder, turns + policy));
  REQUIRE(apart.size() == 4);
  const std::vector<json> seen = ids_of(eval(folder, turns + policy + "--question-in-prompt"));
  for (std::size_t i = 0; i < 4; ++i) {  // full attention, then the window
    CHECK(apart[i] == behind[i % 2][i / 2]);
    CHECK(seen[i] == within[i % 2][i / 2]);
  }
}

TEST_CASE("a question that follows an answer is asked of all that was said, under full attention as in one prompt") {
  const TemporaryFolder folder;
  const std::string turns = file_of(folder, "t", turns_of(kContext)) + "--question '{input}' --dtype f32 --kv f32 ";
  const Evaluated all = eval(folder, turns);
  REQUIRE(all.details.size() == 2);
  CHECK(all.details[1]["turn"] == 2);
  // The tokens of the whole, as they were made, in place of a text that a tokenizer may cut in another way.
  const std::string whole = kContext + kFirst + all.details[0]["text"].get<std::string>() + kSecond;
  const json line = {{"prompt", whole}, {"answer", "x"}};
  CHECK(eval(folder, file_of(folder, "w", line) + "--dtype f32 --kv f32").details[0]["text"] ==
        all.details[1]["text"]);
}

TEST_CASE("scores are given for each turn, and what is evicted before the first is missing for the second as well") {
  const TemporaryFolder folder;
  const Evaluated all =
      eval(folder, file_of(folder, "t", turns_of(kContext)) + "--metric contains --policy window:budget=8,full");
  REQUIRE(all.rows.size() == 2);
  for (const json& row : all.rows) {
    CHECK(row["examples"] == 2);
    CHECK(row["contains"].get<double>() ==
          (row["contains_at_turn_1"].get<double>() + row["contains_at_turn_2"].get<double>()) / 2);
  }
  CHECK(all.rows[1]["kv_resident_bytes"] < 0.3 * all.rows[0]["kv_resident_bytes"].get<double>());
  CHECK(all.notes.find("policies evict before they see a question that stands behind its prompt") !=
        std::string::npos);
  CHECK(all.notes.find("up to 2 questions of a context, each behind the answer before") != std::string::npos);
}

TEST_CASE("the batch and the threads change no answer of a conversation") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("m")) << turns_of(kContext).dump() << "\n"
                                  << turns_of(kContext.substr(40)).dump() << "\n"
                                  << turns_of(kContext.substr(70)).dump() << "\n";
  const std::string words = "--jsonl " + folder.file("m") + " --policy h2o:budget=0.3 ";
  CHECK(ids_of(eval(folder, words + "--batch 1 --threads 1")) == ids_of(eval(folder, words + "--batch 3 --threads 2")));
}

TEST_CASE("what cannot be asked in turns is said in a sentence that names the line") {
  const TemporaryFolder folder;
  const auto error = [&](const json& line, const std::string& words = "") {
    return run_program("eval " + kModel + file_of(folder, "e", line) + words).err;
  };
  const auto says = [](const std::string& text, const std::string& what) {
    INFO(text);
    return text.find(what) != std::string::npos;
  };
  const json plain = {{"prompt", "a b c"}, {"answer", "d"}};
  CHECK(says(error(plain, "--questions apart"), "line 1: --questions apart is of lines with several"));
  CHECK(says(error(plain, "--questions beside"), "--questions beside: expected follow or apart"));
  CHECK(says(error(plain, "--question-in-prompt"), "line 1: --question-in-prompt is of a question that --question or"));
  CHECK(says(error(plain, "--question 'no key'"), "--question 'no key': expected a text with keys"));
  CHECK(says(error({{"context", "a"}, {"multi_turns", json::array()}}), "must be a list of at least one object"));
  CHECK(says(error({{"context", "a"}, {"multi_turns", {1}}}), "line 1, turn 1: not a JSON object"));
  CHECK(says(error({{"context", "a"}, {"multi_turns", {{{"input", "b"}}}}}), "turn 1: key \"reference\" is missing"));
  CHECK(says(error({{"multi_turns", {{{"input", "b"}, {"answer", "c"}}}}}), "line 1: key \"context\" is missing"));
  CHECK(says(error(turns_of(kContext), "-n 4050"), "prompt, questions and the answers between take up to "));
}
