// kvroof eval: perplexity, ROUGE and multiple choice under policies, and what it refuses.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/support/json_lines.hpp"
#include "tests/support/run_program.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;
using nlohmann::json;

namespace {

const std::string kDemo = std::string(KVROOF_SOURCE_DIR) + "/models/demo";
const std::string kText = kDemo + "/prompts/boost-move-copyable.txt";

json rows_of(const std::string& words) {
  const Ran ran = run_program("eval --format json --quiet --model " + kDemo + " " + words);
  INFO(words << ": " << ran.err);
  REQUIRE(ran.code == 0);
  return json::parse(ran.out);
}

std::string file_with(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.file(name), std::ios::binary) << text;
  return folder.file(name);
}

}  // namespace

TEST_CASE("The perplexity of a text equals PyTorch's, whatever the text is cut into") {
  const auto reference = SafetensorsFile::open(kDemo + "/reference.safetensors").or_throw("reference");
  const auto expected = reference.read_floats(*reference.header().find("boost-move-copyable.logprob"));
  double nats = 0;  // of the tokens from position 900 on; [i] is of token i + 1
  for (std::size_t i = 899; i < expected.size(); ++i) nats -= static_cast<double>(expected[i]);
  const auto tokens = expected.size() - 899;
  const json row = rows_of("--text " + kText + " --context 2k --prompt 900 --dtype f32 --kv f32")[0];
  CHECK(row["tokens"] == tokens);
  CHECK(row["nats_per_token"].get<double>() == Approx(nats / static_cast<double>(tokens)).epsilon(1e-4));
  CHECK(row["perplexity"].get<double>() == Approx(std::exp(nats / static_cast<double>(tokens))).epsilon(1e-4));
  CHECK(row["bits_per_byte"].get<double>() == Approx(nats / std::log(2.0) / row["bytes"].get<double>()).epsilon(1e-4));
}

TEST_CASE("Windows count every token after the first prompt once and all bytes of their text") {
  const TemporaryFolder folder;
  const std::string text = slurp(kText).substr(0, 1200);
  const std::string path = file_with(folder, "text", text);
  const std::string details = folder.file("details");
  const json row = rows_of("--text " + path + " --context 64 --prompt 1 --details " + details)[0];
  CHECK(row["bytes"] == text.size());  // the prompt is the begin-of-text token alone
  std::uint64_t next = 0;
  std::uint64_t bytes = 0;
  for (const json& window : json_lines_of(details)) {
    CHECK(window["first_token"] == next);
    next += window["logprobs"].size();
    bytes += window["bytes"].get<std::uint64_t>();
  }
  CHECK(row["tokens"] == next);
  CHECK(bytes == text.size());
}

TEST_CASE("A policy whose budget holds everything gives what full attention gives, one that evicts does not") {
  const TemporaryFolder folder;
  const std::string path = file_with(folder, "text", slurp(kText).substr(0, 1500));
  const json rows = rows_of("--text " + path + " --context 256 --policy window:budget=256,window:budget=16,full");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["policy"] == "full");
  for (const char* key : {"perplexity", "nats_per_token", "kv_resident_bytes"}) CHECK(rows[1][key] == rows[0][key]);
  CHECK(rows[1]["nats_difference"] == 0);
  CHECK(rows[2]["nats_difference"].get<double>() > 0.05);
  // 16 tokens of 6 layers, 4 heads, 64 + 64 elements of 2 bytes.
  CHECK(rows[2]["kv_resident_bytes"] == 16 * 6 * 4 * 128 * 2);
}

TEST_CASE("An evaluation gives the same bytes for any number of threads and any batch") {
  const TemporaryFolder folder;
  const std::string path = file_with(folder, "text", slurp(kText).substr(0, 1200));  // six windows
  const std::string words = "--text " + path + " --context 128 --policy keyformer:budget=0.5,random:budget=24";
  const json first = rows_of(words + " --threads 1 --batch 1");
  CHECK(rows_of(words + " --threads 3 --batch 5") == first);
  const std::string prompts = "--jsonl " + kDemo + "/eval/continuations.jsonl -n 12 --policy keyformer:budget=0.3";
  CHECK(rows_of(prompts + " --threads 1 --batch 1") == rows_of(prompts + " --threads 3 --batch 3"));
}

TEST_CASE("A reference that is the model's own continuation scores 1, and the output says how beams are treated") {
  const TemporaryFolder folder;
  const std::string prompt = "CREATE TABLE creates a new, empty table in";
  const Ran ran = run_program("run --quiet --format json -n 16 --model " + kDemo + " --prompt '" + prompt + "'");
  REQUIRE(ran.code == 0);
  const std::string text = json::parse(ran.out)["text"];
  const std::string path = file_with(folder, "one.jsonl",
                                     json{{"prompt", prompt}, {"reference", text}}.dump() + "\n\n" +
                                         json{{"prompt", prompt}, {"reference", "?"}}.dump());
  const std::string details = folder.file("details");
  const json row = rows_of("--jsonl " + path + " --max-tokens 16 --details " + details)[0];
  CHECK(row["examples"] == 2);
  for (const char* key : {"rouge1_f1", "rouge2_f1", "rougeL_f1", "rougeL_precision", "rougeL_recall"}) {
    CHECK(row[key] == 0.5);  // 1 and 0
  }
  CHECK(row["decoding"] == "greedy; beams are simulated as batch");
  const auto lines = json_lines_of(details);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["text"] == text);
  CHECK(lines[1]["line"] == 3);  // blank lines count
}

TEST_CASE("Of several references the best one counts, under each of their keys, and answers have SQuAD's scores") {
  const TemporaryFolder folder;
  const std::string prompt = "CREATE TABLE creates a new, empty table in";
  const Ran ran = run_program("run --quiet --format json -n 16 --model " + kDemo + " --prompt '" + prompt + "'");
  const std::string text = json::parse(ran.out)["text"];
  std::string lines;
  for (const json& keys : {json{{"answers", {"?", text}}}, json{{"reference", {text, "?"}}}, json{{"answer", text}},
                           json{{"outputs", {"?", "the " + text + "!"}}}}) {
    json line = keys;
    line["prompt"] = prompt;
    lines += line.dump() + "\n";
  }
  const std::string path = file_with(folder, "lines.jsonl", lines);
  const std::string words = "--jsonl " + path + " --max-tokens 16 --policy window:budget=2 --metric ";
  const json rows = rows_of(words + "contains-any,rouge,f1,exact,contains");
  CHECK(rows[0]["rouge2_f1"] > 0.9);
  CHECK(rows[0]["f1"] == 1);
  CHECK(rows[0]["exact"] == 1);
  CHECK(rows[0]["contains"] == (0.5 + 0.5 + 1 + 0) / 4);
  CHECK(rows[0]["contains_any"] == 0.75);
  CHECK(rows[1]["exact_change"] == rows[1]["exact"].get<double>() - 1);
  // Four prompts that are one: the policy loses the same of each, so that the mean of the losses has no error.
  CHECK(rows[1]["exact_change_standard_error"] == 0);
  CHECK(rows[1]["contains_change_standard_error"].get<double>() > 0);
  const json one = rows_of(words + "f1")[0];
  CHECK(one["f1"] == 1);
  for (const char* key : {"exact", "rouge1_f1", "contains"}) CHECK_FALSE(one.contains(key));
}

TEST_CASE("One example has no standard error: null in JSON, nothing in CSV and a dash in the table") {
  const TemporaryFolder folder;
  const std::string prompt = file_with(folder, "p.jsonl", R"({"prompt": "SQLite is", "reference": "a library"})");
  const std::string choice =
      file_with(folder, "c.jsonl", R"({"context": "SQLite is", "choices": ["a", "b"], "answer": 0})");
  struct Task {
    std::string words;
    std::vector<std::string> errors;
  };
  for (const Task& task :
       {Task{"--jsonl " + prompt + " --max-tokens 4", {"rouge1_f1_change_standard_error"}},
        Task{"--jsonl " + choice + " --prompt 0.5",
             {"accuracy_standard_error", "accuracy_change_standard_error", "accuracy_per_byte_change_standard_error"}},
        Task{"--text " + kDemo + "/held-out.txt --task needle --context 200 --depth 0.5 --keys 1",
             {"found_standard_error", "found_change_standard_error"}}}) {
    const std::string words = task.words + " --policy window:budget=2";
    INFO(words);
    const json row = rows_of(words)[1];
    for (const std::string& key : task.errors) {
      INFO(key);
      REQUIRE(row.contains(key));
      CHECK(row[key].is_null());
    }
    const Ran csv = run_program("eval --format csv --quiet --model " + kDemo + " " + words);
    const auto cells_of = [&](std::size_t number) {
      std::istringstream lines(csv.out);
      std::string line, cell;
      for (std::size_t i = 0; i <= number; ++i) std::getline(lines, line);
      std::vector<std::string> cells;
      for (std::istringstream in(line + ","); std::getline(in, cell, ',');) cells.push_back(cell);
      return cells;
    };
    const std::vector<std::string> header = cells_of(0), cells = cells_of(2);
    for (const std::string& key : task.errors) {
      const auto at = static_cast<std::size_t>(std::ranges::find(header, key) - header.begin());
      INFO(key);
      REQUIRE(at < cells.size());
      CHECK(cells[at].empty());
    }
    const Ran table = run_program("eval --quiet --model " + kDemo + " " + words);
    CHECK(table.out.find("±–") != std::string::npos);
    CHECK(table.out.find("±0") == std::string::npos);
  }
}

TEST_CASE("A policy whose window of scored rows fills its budget is said to keep the last tokens alone") {
  const std::string words = "eval --model " + kDemo + " --text " + kText + " --context 128 --policy ";
  const std::string advice = "note: snapkv:budget=0.5: the window of 32 tokens stays before all others";
  CHECK(run_program(words + "snapkv:budget=0.5").err.find(advice) != std::string::npos);  // 32 of 64
  CHECK(run_program(words + "snapkv:budget=0.6").err.find("stays before all others") == std::string::npos);
}

TEST_CASE("A template makes the prompt of the texts of a line") {
  const TemporaryFolder folder;
  const auto text_of = [&](const std::string& line, const std::string& words) {
    const std::string details = folder.file("details");
    rows_of("--jsonl " + file_with(folder, "l.jsonl", line) + " -n 12 --details " + details + words);
    return json_lines_of(details)[0]["text"];
  };
  const json parts = {{"context", "An {input} is"}, {"input", "error"}, {"answers", {"x"}}};
  CHECK(text_of(parts.dump(), " --template '{input}: {a b} {context} {'") ==
        text_of(R"({"prompt": "error: {a b} An {input} is {", "reference": "x"})", ""));
}

TEST_CASE("A policy's label has what distinguishes it, and its name is the one that was given") {
  const TemporaryFolder folder;
  const std::string words = " --model " + kDemo + " --text " + file_with(folder, "text", slurp(kText).substr(0, 300)) +
                            " --policy h2o:budget=0.2,h2o:budget=0.2:recent=0.3,scissorhands:budget=0.2," +
                            "scissorhands-4bit:budget=0.2 --quiet";
  const std::string table = run_program("eval" + words).out;
  INFO(table);
  for (const char* label : {"h2o ", "h2o[1] ", "scissorhands ", "scissorhands-4bit ", "[1] h2o:recent=0.3\n"}) {
    CHECK(table.find(std::string("\n") + label) != std::string::npos);
  }
  const json rows = json::parse(run_program("eval --format json" + words).out);
  CHECK(rows[2]["policy"] == "h2o");
  CHECK(rows[2]["spec"] == "h2o:budget=0.2:recent=0.3");
  CHECK(rows[4]["policy"] == "scissorhands-4bit");
}

TEST_CASE("A token that several windows predict counts once, where a policy has evicted before it") {
  const TemporaryFolder folder;
  const std::string path = file_with(folder, "text", slurp(kText).substr(0, 1200));
  const auto counted = [&](const std::string& stride) {
    const std::string details = folder.file("details");
    const json row =
        rows_of("--text " + path + " --context 96 --prompt 32 --dtype f32 --kv f32 --details " + details + stride)[0];
    std::vector<double> logprobs;
    std::uint64_t bytes = 0;
    for (const json& window : json_lines_of(details)) {
      CHECK(window["first_token"] == 31 + logprobs.size());  // behind the prompt, begin of text left out
      for (const json& logprob : window["logprobs"]) logprobs.push_back(logprob.get<double>());
      bytes += window["bytes"].get<std::uint64_t>();
    }
    CHECK(row["tokens"] == logprobs.size());
    CHECK(row["bytes"] == bytes);
    return logprobs;
  };
  const std::vector<double> once = counted(""), close = counted(" --stride 16");
  REQUIRE(close.size() == once.size());
  for (std::size_t i = 0; i < 64; ++i) CHECK(close[i] == once[i]);  // the first windows are the same
  CHECK(close != once);  // later ones see more of the text
}

TEST_CASE("A choice's log-likelihood is the sum over its tokens, and no policy changes a choice of one token") {
  const TemporaryFolder folder;
  const std::string context = slurp(kText).substr(0, 400);
  const std::string choice = "The library provides a container.";
  const std::string details = folder.file("choice"), windows = folder.file("text");
  const std::string path =
      file_with(folder, "q.jsonl", json{{"context", context}, {"choices", {choice, "a"}}, {"answer", 0}}.dump());
  const json rows = rows_of("--jsonl " + path + " --policy window:budget=8 --details " + details);
  const auto lines = json_lines_of(details);
  REQUIRE(lines.size() == 2);
  const json full = lines[0]["log_likelihoods"], window = lines[1]["log_likelihoods"];
  CHECK(full[1] == window[1]);
  CHECK(full[0] != window[0]);
  // The same tokens as the end of a text.
  const std::string whole = file_with(folder, "whole", context + " " + choice);
  rows_of("--text " + whole + " --context 1k --prompt 1 --details " + windows);
  const json logprobs = json_lines_of(windows)[0]["logprobs"];
  const std::string shorter = file_with(folder, "context", context);
  const std::size_t before = rows_of("--text " + shorter + " --context 1k --prompt 1")[0]["tokens"];
  double sum = 0;
  for (std::size_t i = before; i < logprobs.size(); ++i) sum += logprobs[i].get<double>();
  CHECK(full[0].get<double>() == Approx(sum).epsilon(1e-2));  // weights and cache are bf16
  CHECK(rows[0]["accuracy"].get<double>() == (full[0] > full[1] ? 1 : 0));
}

TEST_CASE("Blanks at the end of a context belong to the choice, as lm-evaluation-harness has it") {
  const TemporaryFolder folder;
  const auto likelihoods = [&](const std::string& context, const std::string& options) {
    const std::string path = file_with(
        folder, "q.jsonl", json{{"context", context}, {"choices", {"raised.", "opened."}}, {"answer", 0}}.dump());
    rows_of("--jsonl " + path + " " + options + " --details " + folder.file("d"));
    return json_lines_of(folder.file("d"))[0]["log_likelihoods"];
  };
  CHECK(likelihoods("an error is", "") == likelihoods("an error is ", "--delimiter ''"));
}

TEST_CASE("The bundled questions are answered by the bundled model") {
  const json rows = rows_of("--jsonl " + kDemo + "/eval/questions.jsonl --policy h2o:budget=0.5 --prompt 0.5");
  CHECK(rows[0]["accuracy"] == 1.0);
  CHECK(rows[0]["agreement_with_full"] == 1.0);
  CHECK(rows[1]["kv_share_of_full"].get<double>() < 0.5);
}

TEST_CASE("Bad input of an evaluation is answered with one sentence that names it") {
  const TemporaryFolder folder;
  int files = 0;
  const auto input = [&](const std::string& content) { return file_with(folder, std::to_string(++files), content); };
  const auto jsonl = [&](const std::string& content) { return "--jsonl " + input(content); };
  const auto text = [&](const std::string& content) { return "--text " + input(content); };
  const std::string question = R"({"context": "a", "choices": ["b", "c"], "answer": )";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "give either --text F (perplexity or needles) or --jsonl F"},
      {text(""), "the file is empty"},
      {text("a") + " --prompt 2", "no token is left to predict in a window of 2, which is the whole text"},
      {text("some words") + " --context 5k", "--context 5120: the context of the model is 4096"},
      {text("some words") + " --task rouge", "--task rouge: expected perplexity or needle with --text"},
      {text("some words") + " --prompt 0", "--prompt 0: expected"},
      {text("some words") + " --policy oracle:budget=2", "looks ahead"},
      {"--text " + folder.file("absent"), "No such file"},
      {jsonl(""), "the file is empty"},
      {text("some words") + " --metric f1", "--metric belongs to --task rouge"},
      {jsonl(R"({"prompt": "a", "answers": []})"), "\"answers\" must be a text or a list of at least one, found []"},
      {jsonl(R"({"prompt": "a", "answers": ["b", ""]})"), "\"answers\" must be texts that are not empty"},
      {jsonl(R"({"prompt": "a", "answers": ["b"]})") + " --metric f2", "expected a list of rouge, f1, exact"},
      {jsonl(R"({"input": "a", "answers": ["b"]})"), "line 1: key \"prompt\" is missing"},
      {jsonl(R"({"input": "a", "answers": ["b"]})") + " --template '{context}'", "key \"context\" is missing"},
      {jsonl(R"({"input": "a", "answers": ["b"]})") + " --template 'a {b c}'", "keys of the JSON lines in braces"},
      {jsonl("{\"prompt\": \"a\", \"reference\": \"b\"}\n{oops"), "line 2: not a JSON object"},
      {jsonl("[1]"), "line 1: not a JSON object"},
      {jsonl("{\"prompt\": \"a\"}"), "line 1 has neither \"reference\" nor \"choices\""},
      {jsonl("{\"prompt\": \"a\"}") + " --task rouge", "line 1: key \"reference\" is missing"},
      {jsonl("{\"prompt\": \"\", \"reference\": \"b\"}"), "\"prompt\" must be a text that is not empty"},
      {jsonl("{\"prompt\": 7, \"reference\": \"b\"}"), "\"prompt\" must be a text, found 7"},
      {jsonl(question + "2}"), "\"answer\" must be a number from 0 to 1, the index of a choice, found 2"},
      {jsonl(question + "-1}"), "found -1"},
      {jsonl(question + "\"b\"}"), "found \"b\""},
      {jsonl(R"({"context": "a", "choices": ["b"], "answer": 0})"), "\"choices\" must be a list of at least two texts"},
      {jsonl(R"({"context": "a", "choices": ["b", ""], "answer": 0})"), "\"choices\" must be texts that are not empty"},
      {jsonl(question + "0}") + " --max-tokens 4", "--max-tokens belongs to --task rouge"},
      {jsonl(question + "0}") + " --task guess", "--task guess: expected rouge or choice"},
  };
  for (const auto& [words, expected] : cases) {
    const Ran ran = run_program("eval --model " + kDemo + " " + words);
    INFO(words << "\n" << ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.find("error: ") == 0);
    CHECK(ran.err.find(expected) != std::string::npos);
  }
}
