// The scoreboard as a table of a document: one line for all tables of one engine, kind of figure and device.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "analysis/scoreboard.hpp"

namespace kvroof {

// Lines of Markdown, and below them each group that is off by more than `failing` on average.
std::string scoreboard_markdown(std::span<const ScoredRow> rows, double failing = 0.2);

// The document with the text between the two marks replaced; refuses one in which either is missing or not alone.
inline constexpr std::string_view kScoreboardBegin = "<!-- scoreboard: kvroof validate --readme -->\n";
inline constexpr std::string_view kScoreboardEnd = "<!-- /scoreboard -->\n";
Result<std::string> with_scoreboard(std::string_view document, std::string_view markdown);

}  // namespace kvroof
