// The rules of the source tree that a reader relies on: layers, one-way includes, sizes of files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = KVROOF_SOURCE_DIR;

// A box may include boxes of lower levels and those named for it; docs/architecture.md explains the levels.
const std::map<std::string, std::vector<std::string>> kMayInclude = {
    {"sim/core", {}},
    {"sim/device", {"sim/core"}},
    {"sim/model", {"sim/core"}},
    {"sim/attention", {"sim/core"}},
    {"traces", {"sim/core"}},
    {"sim/policy", {"sim/core", "sim/attention", "sim/model"}},
    {"sim/traffic", {"sim/core", "sim/model"}},
    {"sim/replay", {"sim/core", "sim/attention", "sim/model", "sim/policy", "traces"}},
    {"sim/cost", {"sim/core", "sim/device", "sim/model", "sim/traffic"}},
    {"sim/serving", {"sim/core", "sim/device", "sim/model", "sim/traffic", "sim/cost"}},
    {"kernels",
     {"sim/core", "sim/attention", "sim/model", "sim/policy", "traces", "kernels/tokenizer", "kernels/libraries"}},
    {"kernels/tokenizer", {"sim/core"}},
    {"kernels/libraries", {"sim/core"}},
    {"analysis",
     {"sim/core", "sim/attention", "sim/model", "sim/policy", "sim/replay", "sim/traffic", "sim/cost", "sim/device",
      "traces"}},
};

// The innermost box that holds the path: names of inner boxes sort after those around them.
std::string box_of(const std::string& path) {
  for (auto box = kMayInclude.rbegin(); box != kMayInclude.rend(); ++box) {
    if (path.starts_with(box->first + "/")) return box->first;
  }
  return path.substr(0, path.find('/'));
}

std::vector<fs::path> sources(const std::vector<std::string>& folders) {
  std::vector<fs::path> found;
  for (const std::string& folder : folders) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".hpp" || extension == ".cpp" || extension == ".cu" || extension == ".cuh")
        found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Columns that a line of UTF-8 takes: one for each code point.
std::size_t columns_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Whether a file of `box` may not include `target`.
bool is_upward(const std::string& box, const std::string& target) {
  const auto rule = kMayInclude.find(box);
  if (rule == kMayInclude.end() || target == "kvroof_version.hpp" || box_of(target) == box) return false;
  return std::find(rule->second.begin(), rule->second.end(), box_of(target)) == rule->second.end();
}

// Includes that leave their box for one that it may not use, as "file: include".
std::vector<std::string> upward_includes(const std::vector<fs::path>& files) {
  const std::regex include("^\\s*#\\s*include\\s+\"([^\"]+)\".*");
  std::vector<std::string> wrong;
  for (const fs::path& file : files) {
    const std::string name = fs::relative(file, kRoot).string();
    for (const std::string& line : lines_of(file)) {
      std::smatch match;
      if (!std::regex_match(line, match, include)) continue;
      if (is_upward(box_of(name), match[1].str())) wrong.push_back(name + ": " + match[1].str());
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("No file includes a header of a layer above its own") {
  const auto files = sources({"sim", "traces", "kernels", "analysis"});
  REQUIRE(files.size() > 50);
  CHECK(upward_includes(files) == std::vector<std::string>{});
}

TEST_CASE("The engine may use neither traffic nor cost, and the simulator not the engine") {
  CHECK(is_upward("kernels", "sim/traffic/traffic.hpp"));
  CHECK(is_upward("kernels", "sim/cost/cost.hpp"));
  CHECK(is_upward("sim/replay", "kernels/engine/ops.hpp"));
  CHECK(is_upward("sim/policy", "traces/reader.hpp"));
  CHECK(is_upward("sim/core", "apps/cli/command.hpp"));
  CHECK(is_upward("kernels/tokenizer", "kernels/engine/ops.hpp"));
  CHECK(is_upward("kernels/libraries", "kernels/cupti/machine.hpp"));
  CHECK_FALSE(is_upward("kernels/engine", "kernels/tokenizer/tokenizer.hpp"));
  CHECK_FALSE(is_upward("kernels", "traces/writer.hpp"));
  CHECK_FALSE(is_upward("sim/cost", "sim/traffic/traffic.hpp"));
}

TEST_CASE("Every header starts with a sentence on what it is for and is included once") {
  for (const fs::path& file : sources({"sim", "traces", "kernels", "analysis", "apps"})) {
    if (file.extension() != ".hpp" && file.extension() != ".cuh") continue;
    const auto lines = lines_of(file);
    INFO(file.string());
    REQUIRE(!lines.empty());
    CHECK(lines[0].starts_with("// "));
    CHECK(std::find(lines.begin(), lines.end(), "#pragma once") != lines.end());
  }
}

TEST_CASE("A source includes its own header first, so that the header compiles alone") {
  std::size_t pairs = 0;
  for (const fs::path& file : sources({"sim", "traces", "kernels", "analysis", "apps"})) {
    const fs::path header = fs::path(file).replace_extension(".hpp");
    if (file.extension() != ".cpp" || !fs::exists(header)) continue;
    const auto lines = lines_of(file);
    const auto first =
        std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("#include"); });
    INFO(file.string());
    REQUIRE(first != lines.end());
    CHECK(*first == "#include \"" + fs::relative(header, kRoot).string() + "\"");
    ++pairs;
  }
  CHECK(pairs > 100);
}

TEST_CASE("Every kernel waits for the launch before it, which may still be running when it is made ready") {
  const std::regex kernel("KV_(PLAIN_)?KERNEL (?:KV_RESIDENT\\([^\n{]*\\) )?void (\\w+)\\([^)]*\\) \\{[^]*?\\n\\}");
  std::size_t kernels = 0;
  for (const fs::path& file : sources({"kernels/cuda", "tests/gpu"})) {
    if (file.filename() == "device.cuh") continue;
    std::string text;
    for (const std::string& line : lines_of(file)) text += line + '\n';
    for (std::sregex_iterator i(text.begin(), text.end(), kernel), end; i != end; ++i, ++kernels) {
      INFO(file.string() << ": " << (*i)[2].str());
      CHECK(i->str().find("\n  await_previous();") != std::string::npos);
    }
  }
  CHECK(kernels > 10);
}

TEST_CASE("No source file is longer than 400 lines or wider than 120 columns") {
  std::vector<std::string> wrong;
  for (const fs::path& file : sources({"sim", "traces", "kernels", "analysis", "apps", "tests"})) {
    const std::string name = fs::relative(file, kRoot).string();
    const auto lines = lines_of(file);
    if (lines.size() > 400) wrong.push_back(name + ": " + std::to_string(lines.size()) + " lines");
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::size_t columns = columns_of(lines[i]);
      if (columns <= 120) continue;
      wrong.push_back(name + ":" + std::to_string(i + 1) + ": " + std::to_string(columns) + " columns");
    }
  }
  CHECK(wrong == std::vector<std::string>{});
}

TEST_CASE("Input is never validated by assert") {
  const std::regex assertion("\\bassert\\s*\\(");
  for (const fs::path& file : sources({"sim", "traces", "kernels", "analysis", "apps"})) {
    for (const std::string& line : lines_of(file)) {
      if (line.find("static_assert") != std::string::npos) continue;
      INFO(file.string() << ": " << line);
      CHECK_FALSE(std::regex_search(line, assertion));
    }
  }
}

// CTest passes a name on as a word of its own: one that begins like an option is taken for one, and a list is cut.
TEST_CASE("No name of a test begins like an option or has what cuts a list in two") {
  const std::regex begins_wrong(R"(TEST_CASE\("-)"), cuts(R"(TEST_CASE\("[^"]*;)");
  for (const fs::path& file : sources({"tests"})) {
    for (const std::string& line : lines_of(file)) {
      INFO(file.string() << ": " << line);
      CHECK_FALSE((std::regex_search(line, begins_wrong) || std::regex_search(line, cuts)));
    }
  }
}
