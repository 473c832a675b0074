// The pictures of an analysis' result, and the page that shows those of all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/analysis.hpp"

namespace kvroof {

struct Picture {
  std::string name;  // of its file, without .svg
  std::string svg;
};

// Its charts; a chart over layers of the measures that ask for it; a map over layers and heads of the first measure.
std::vector<Picture> pictures_of(const AnalysisResult& result);

// One self-contained page: each result's finding, definition, source and pictures. `about` says what was analysed.
std::string html_page(const std::string& about, std::span<const AnalysisResult> results);

}  // namespace kvroof
