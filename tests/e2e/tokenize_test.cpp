// tokenize and detokenize at the command line, and check-golden as a judge of both.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;

namespace {

const std::string kSource = KVROOF_SOURCE_DIR;
const std::string kDemo = kSource + "/models/demo";

std::string file_with(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  const std::string path = folder.file(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// The exit code of check-golden, run on this build's program.
int check_golden(const std::string& kind, const std::string& folder, const std::string& output) {
  const std::string command = "KVROOF='" KVROOF_PROGRAM "' '" + kSource + "/scripts/check-golden' " + kind + " '" +
                              folder + "' > '" + output + "' 2>&1";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) last = line;
  return last;
}

}  // namespace

TEST_CASE("tokenize and detokenize print one JSON line per line, in order") {
  const TemporaryFolder folder;
  const std::string texts = file_with(folder, "texts.jsonl", "{\"text\": \"the file\\n\"}\n{\"text\": \"\"}\n");
  const Ran ids = run_program("tokenize --special --model " + kDemo + " --jsonl " + texts);
  CHECK(ids.code == 0);
  CHECK(std::count(ids.out.begin(), ids.out.end(), '\n') == 2);
  CHECK(ids.out.ends_with("\n{\"ids\":[0]}\n"));
  const std::string sequences = file_with(folder, "ids.jsonl", ids.out);
  const Ran back = run_program("detokenize --skip-special --model " + kDemo + " --jsonl " + sequences);
  CHECK(back.out == "{\"text\":\"the file\\n\"}\n{\"text\":\"\"}\n");
  const Ran kept = run_program("detokenize --model " + kDemo + " --jsonl " + sequences);
  CHECK(kept.out.ends_with("\n{\"text\":\"<|endoftext|>\"}\n"));
}

TEST_CASE("tokenize and detokenize print a record of CSV for each line when asked") {
  const TemporaryFolder folder;
  const std::string texts = file_with(folder, "texts.jsonl", "{\"text\": \"\\\"a,\\nb\"}\n{\"text\": \"\"}\n");
  const Ran lines = run_program("tokenize --model " + kDemo + " --jsonl " + texts);
  // The ids of the line {"ids":[1,2]} stand between spaces.
  std::string ids = lines.out.substr(lines.out.find('[') + 1, lines.out.find(']') - lines.out.find('[') - 1);
  REQUIRE(ids.find(',') != std::string::npos);
  std::ranges::replace(ids, ',', ' ');
  const Ran csv = run_program("tokenize --format csv --model " + kDemo + " --jsonl " + texts);
  CHECK(csv.out == "line,ids\n1," + ids + "\n2,\n");
  const std::string sequences = file_with(folder, "ids.jsonl", lines.out);
  const Ran back = run_program("detokenize --format csv --model " + kDemo + " --jsonl " + sequences);
  CHECK(back.out == "line,text\n1,\"\"\"a,\nb\"\n2,\n");
}

TEST_CASE("a line that is not as expected is named and nothing is printed") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& verb, const std::string& line) {
    const std::string path = file_with(folder, "lines.jsonl", "{\"text\": \"a\", \"ids\": [1]}\n" + line + "\n");
    const Ran ran = run_program(verb + " --model " + kDemo + " --jsonl " + path);
    INFO(line << ran.err);
    CHECK(ran.code == 1);
    CHECK(ran.out.empty());
    CHECK(ran.err.find("line 2") != std::string::npos);
  };
  for (const char* line : {"", "{", "[]", "{\"text\": 1}", "{\"texts\": \"a\"}"}) refused("tokenize", line);
  for (const char* line :
       {"{\"ids\": [4096]}", "{\"ids\": [-1]}", "{\"ids\": [1.5]}", "{\"ids\": 7}", "{\"text\": \"a\"}"}) {
    refused("detokenize", line);
  }
}

TEST_CASE("a line that is no UTF-8 is said to be none, with the place of its first byte that is not") {
  const TemporaryFolder folder;
  const std::string lines = file_with(folder, "lines", "{\"text\": \"a\"}\n{\"text\": \"caf\xe9\"}\n");
  const Ran ran = run_program("tokenize --model " + kDemo + " --jsonl " + lines);
  INFO(ran.err);
  CHECK(ran.code == 2);
  CHECK(ran.out.empty());
  CHECK(ran.err.starts_with("error: " + lines +
                            ": line 2: expected a text in UTF-8, found the byte 0xe9 at offset 13;"));
}

TEST_CASE("check-golden counts every line of the reference tokenizers as equal") {
  const TemporaryFolder folder;
  CHECK(check_golden("tokenizers", kSource + "/tests/golden/tokenizers", folder.file("out")) == 0);
  CHECK(last_line(folder.file("out")) == "9924 of 9924 equal");
}

TEST_CASE("check-golden fails on a wrong reference and on an empty folder") {
  const TemporaryFolder folder;
  CHECK(check_golden("tokenizers", folder.path().string(), folder.file("out")) == 3);
  CHECK(last_line(folder.file("out")) == "0 of 0 equal");
  std::filesystem::copy(kSource + "/tests/golden/tokenizers/gpt2/tokenizer.json", folder.file("tokenizer.json"));
  file_with(folder, "vectors.jsonl",
            "{\"text\": \" \", \"ids\": [220], \"ids_special\": [220], \"decoded\": \" \", \"decoded_skip\": \" \"}\n"
            "{\"text\": \" \", \"ids\": [221], \"ids_special\": [220], \"decoded\": \" \", \"decoded_skip\": \" \"}\n");
  CHECK(check_golden("tokenizers", folder.path().string(), folder.file("out")) == 3);
  CHECK(last_line(folder.file("out")) == "1 of 2 equal");
}
