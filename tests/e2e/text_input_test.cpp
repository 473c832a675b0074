// Texts of files, pipes and standard input, and what is refused as no text.
#include <fstream>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

const std::string kDemo = std::string(KVROOF_SOURCE_DIR) + "/models/demo";

std::string file_with(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.file(name), std::ios::binary) << text;
  return folder.file(name);
}

}  // namespace

TEST_CASE("What is no text is refused in one sentence that names its first bad byte, wherever a text is read") {
  using namespace std::string_literals;
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"some\0words"s, "found the byte 0x00 at offset 4"},
      {"caf\xe9 au lait", "found the byte 0xe9 at offset 3"},
      {"\xff\xfes\0o\0"s, "found the byte 0xff at offset 0"},
      {"caf\xc3\xa9 \xed\xa0\x80", "found the byte 0xed at offset 6"},  // a surrogate
      {"the end is cut \xe2\x82", "found the byte 0xe2 at offset 15"},
      {"\x1f\x8b\x08 and so on", "found bytes 0 and 1 of gzip; decompress it (gunzip)"}};
  for (const auto& [bytes, found] : cases) {
    const std::string path = file_with(folder, "bytes", bytes);
    for (const std::string verb : {"eval --text ", "eval --jsonl ", "run --prompt-file "}) {
      const Ran ran = run_program(verb + path + " --model " + kDemo);
      INFO(verb << ran.err);
      CHECK(ran.code == 2);
      CHECK(ran.err.find(path + ": expected a text") != std::string::npos);
      CHECK(ran.err.find(found) != std::string::npos);
    }
  }
}

TEST_CASE("A prompt on the command line is held to be a text like one in a file") {
  const Ran ran = run_program("run -n 2 --model " + kDemo + " --prompt 'caf\xe9 au lait'");
  INFO(ran.err);
  CHECK(ran.code == 2);
  CHECK(ran.err.find("--prompt: expected a text in UTF-8, found the byte 0xe9 at offset 3") != std::string::npos);
}

TEST_CASE("Texts come from standard input and pipes as they do from files") {
  const TemporaryFolder folder;
  std::string text = "An error is raised when the caf\u00e9 table is full.";
  for (int i = 0; i < 5; ++i) text += "\n" + text;
  const std::string path = file_with(folder, "text", text), pipe = folder.file("pipe");
  REQUIRE(std::system(("mkfifo " + pipe).c_str()) == 0);
  const std::string before = "(cat " + path + " | KVROOF_BACKEND=fast " + KVROOF_PROGRAM;
  const auto check_same = [&](const std::string& verb, const std::string& rest) {
    const std::string expected = run_program(verb + path + rest).out;
    REQUIRE(!expected.empty());
    CHECK(run_program(verb + "-" + rest + ")", before).out == expected);
    CHECK(run_program(verb + "/dev/stdin" + rest + ")", before).out == expected);
    const std::string writer = "(cat " + path + " >" + pipe + " &) && KVROOF_BACKEND=fast " + KVROOF_PROGRAM;
    CHECK(run_program(verb + pipe + rest, writer).out == expected);
  };
  check_same("eval --quiet --text ", " --context 64 --model " + kDemo);
  check_same("run --quiet --prompt-file ", " -n 2 --model " + kDemo);
  std::ofstream(path) << R"({"prompt": "An error is", "reference": "raised"})";
  check_same("eval --quiet --jsonl ", " -n 2 --model " + kDemo);
}

TEST_CASE("NUL bytes may separate documents, a device is no text, and an empty pipe is empty") {
  const TemporaryFolder folder;
  const std::string document(100, 'x');
  const std::string path = file_with(folder, "documents", document + '\0' + document + '\0' + document);
  CHECK(run_program("eval --text " + path + " --model " + kDemo).code == 0);
  std::ofstream(path, std::ios::binary) << document << '\0' << '\0' << document;  // 2 of 202 bytes
  CHECK(run_program("eval --text " + path + " --model " + kDemo).code == 0);
  std::ofstream(path, std::ios::binary) << document << '\0' << '\0' << document.substr(5);  // 2 of 197
  CHECK(run_program("eval --text " + path + " --model " + kDemo).err.find("byte 0x00 at offset 100") !=
        std::string::npos);
  CHECK(run_program("eval --text /dev/zero --model " + kDemo).err.find("not a regular file") != std::string::npos);
  CHECK(run_program("eval --text - --model " + kDemo).err.find("--text -: the file is empty") != std::string::npos);
}
