// The answers that documents print are those that the program gives.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;

namespace {

struct Example {
  std::string words;               // of the command, without the program's name
  std::vector<std::string> lines;  // that the document prints below it, those that it leaves out (…) left out
};

bool predicts(const std::string& words) {
  for (const char* command : {"plan ", "compare ", "simulate ", "prefixes "}) {
    if (words.starts_with(command)) return true;
  }
  return false;
}

// Commands after "$ kvroof" that predict without a recorded run: what such a run holds goes by the processor's sums.
std::vector<Example> examples_of(const std::filesystem::path& path) {
  constexpr std::string_view kIndent = "    ";
  constexpr std::string_view kPrompt = "$ kvroof ";
  std::ifstream in(path);
  std::vector<Example> examples;
  std::string line;
  bool inside = false;
  while (std::getline(in, line)) {
    if (!line.starts_with(kIndent)) {
      inside = inside && line.empty();
      continue;
    }
    line.erase(0, kIndent.size());
    if (line.starts_with(kPrompt)) {
      std::string words = line.substr(kPrompt.size());
      while (words.ends_with("\\") && std::getline(in, line)) words = words.substr(0, words.size() - 1) + line;
      inside = predicts(words);
      if (inside) examples.push_back({words, {}});
    } else if (inside && line != "…") {
      examples.back().lines.push_back(line);
    }
  }
  return examples;
}

std::vector<std::filesystem::path> documents() {
  const std::filesystem::path root = KVROOF_SOURCE_DIR;
  std::vector<std::filesystem::path> paths = {root / "README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  return paths;
}

}  // namespace

TEST_CASE("every line of a prediction that a document prints is one that the program prints") {
  const TemporaryFolder folder;
  std::size_t lines = 0;
  for (const std::filesystem::path& path : documents()) {
    for (Example& example : examples_of(path)) {
      const std::size_t picture = example.words.find("--svg ");
      if (picture != std::string::npos) example.words.insert(picture + 6, folder.file(""));
      INFO(path.filename().string() << ": kvroof " << example.words);
      const Ran ran = run_program(example.words);
      CHECK(ran.code == 0);
      std::set<std::string> printed;
      std::istringstream out(ran.out);
      for (std::string line; std::getline(out, line);) printed.insert(line);
      for (const std::string& line : example.lines) {
        INFO(line);
        CHECK(printed.contains(line));
        ++lines;
      }
    }
  }
  CHECK(lines >= 35);  // of the README's first answer and the tutorial's
}
