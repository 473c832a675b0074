// docs/analyses.md has what the table of analyses has.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "analysis/analysis.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

// The rows of an analysis in the table of definitions: its first, and those after it that have no name. Empty: none.
std::string rows_of(const std::string& document, std::string_view name) {
  std::size_t end = document.find(fmt::format("\n| `{}` |", name));
  if (end == std::string::npos) return {};
  const std::size_t begin = end;
  do {
    end = document.find('\n', end + 1);
  } while (document.compare(end, 5, "\n| | ") == 0);
  return document.substr(begin, end - begin);
}

// Of an analysis that the page does not have yet; definition and source are to be written.
std::string new_row(const AnalysisInfo& info) {
  std::string measures;
  for (const MeasureInfo& m : info.measures) measures += fmt::format("{}`{}`", measures.empty() ? "" : ", ", m.key);
  return fmt::format("| `{}` | {} | … | … |", info.name, measures);
}

}  // namespace

TEST_CASE("docs/analyses.md defines every measure of every analysis beside its name") {
  std::ifstream file(KVROOF_SOURCE_DIR "/docs/analyses.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  for (const AnalysisInfo& info : analysis_table()) {
    const std::string rows = rows_of(document, info.name);
    if (rows.empty()) fmt::print("docs/analyses.md needs this row:\n{}\n", new_row(info));
    INFO(info.name);
    CHECK_FALSE(rows.empty());
    for (const MeasureInfo& measure : info.measures) {
      INFO(measure.key);
      CHECK((rows.empty() || rows.find(fmt::format("`{}`", measure.key)) != std::string::npos));
    }
  }
}

TEST_CASE("every analysis says what it is, where it comes from and what was found, and no two have one name") {
  std::set<std::string_view> names;
  for (const AnalysisInfo& info : analysis_table()) {
    INFO(info.name);
    CHECK(names.insert(info.name).second);
    CHECK_FALSE(info.title.empty());
    CHECK(info.definition.ends_with('.'));
    CHECK_FALSE(info.source.empty());
    CHECK(info.finding != nullptr);
    CHECK((info.start == nullptr) != (info.replay == nullptr));  // it works on rows or on policies
  }
}
