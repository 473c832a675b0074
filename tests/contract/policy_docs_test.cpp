// docs/policies.md says what the table of policies says.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim/policy/policy.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result(text);
  for (std::size_t at = 0; (at = result.find(from, at)) != std::string::npos; at += to.size()) {
    result.replace(at, from.size(), to);
  }
  return result;
}

// What the section of a policy begins with; the prose after it is free.
std::string section(const PolicyInfo& info) {
  std::string text = fmt::format("\n## {}\n\n{}\n\n*Source: {}.*\n", info.name, info.summary, info.source);
  if (info.params.empty()) return text;
  text += "\n| parameter | values | default | meaning |\n|---|---|---|---|\n";
  for (const ParamInfo& p : info.params) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", p.name, replaced(p.values, "|", "or"), p.fallback, p.help);
  }
  return text + "\n";
}

}  // namespace

TEST_CASE("docs/policies.md has each policy's summary, source and parameters as the program has them") {
  std::ifstream file(KVROOF_SOURCE_DIR "/docs/policies.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  for (const PolicyInfo& info : policy_table()) {
    const bool is_there = document.find(section(info)) != std::string::npos;
    // As it belongs there: the test's own output would break its lines.
    if (!is_there) fmt::print("docs/policies.md needs this text:\n{}", section(info));
    INFO(info.name);
    CHECK(is_there);
  }
}
