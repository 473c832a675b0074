// docs/analyses.md has what the table of analyses has.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
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

}  // namespace

TEST_CASE("docs/analyses.md defines every measure of every analysis beside its name") {
  std::ifstream file(KVROOF_SOURCE_DIR "/docs/analyses.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  for (const AnalysisInfo& info : analysis_table()) {
    INFO(info.name);
    CHECK(rows_of(document, info.name) != "");
    for (const MeasureInfo& measure : info.measures) {
      INFO(measure.key);
      CHECK(rows_of(document, info.name).find(fmt::format("`{}`", measure.key)) != std::string::npos);
    }
  }
}
