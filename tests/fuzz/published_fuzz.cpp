// Fuzz target: any bytes as a file of published measurements, read and scored.
#include <cstdint>
#include <string_view>

#include "analysis/scoreboard.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto rows = kvroof::published_rows({reinterpret_cast<const char*>(data), size});
  if (!rows) {
    kvroof::check(!rows.error().empty() && rows.error().size() < 1000, "a refusal is one sentence");
    return 0;
  }
  static const kvroof::Scoreboard scoreboard(std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog");
  for (const kvroof::PublishedRow& row : rows.value()) {
    const kvroof::ScoredRow scored = scoreboard.score(row);
    kvroof::check(scored.predicted.has_value() == scored.refused.empty(), "a row is predicted, or it is said why not");
    kvroof::check(!scored.predicted || scored.predicted->value >= 0, "a prediction is no less than 0");
  }
  return 0;
}
