// The scoreboard as tables of a document: short by engine and kind of figure, or with a line for each of their boards.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "analysis/scoreboard.hpp"

namespace kvroof {

// Off by more than this on average: known to fail.
inline constexpr double kFailingError = 0.2;

// One line for each engine and kind of figure, engines of few rows together, with the board that is furthest off; below
// them each failing group of many rows.
std::string scoreboard_summary(std::span<const ScoredRow> rows);

// One line for all tables of one engine, kind of figure and board; below them each failing group.
std::string scoreboard_by_board(std::span<const ScoredRow> rows);

// The document with the table that its marks ask for between them; refuses one in which a mark is missing or not alone.
inline constexpr std::string_view kSummaryBegin = "<!-- scoreboard: kvroof validate --readme -->\n";
inline constexpr std::string_view kByBoardBegin = "<!-- scoreboard by board: kvroof validate --readme -->\n";
inline constexpr std::string_view kScoreboardEnd = "<!-- /scoreboard -->\n";
Result<std::string> with_scoreboard(std::string_view document, std::span<const ScoredRow> rows);

}  // namespace kvroof
