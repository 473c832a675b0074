// What `kvroof analyze` prints and writes: short tables, JSON, CSV, and a folder with pictures.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "analysis/analysis.hpp"
#include "apps/cli/command.hpp"

namespace kvroof {

struct AnalyzeAnswer {
  const Arguments& arguments;
  const TraceReader& trace;
  std::span<const AnalysisResult> results;
};

// A finding, a definition and a table of each analysis.
std::string analyze_table(const AnalyzeAnswer& answer);
// Everything: values by layer and head, lines of charts overall and by layer.
std::string analyze_json(const AnalyzeAnswer& answer);
// analysis,measure,layer,head,value: a row a value.
std::string analyze_csv(std::span<const AnalysisResult> results);

// Throws Error (usage) when `folder` is there already.
void check_new_folder(const std::filesystem::path& folder);
// NAME.json, NAME.csv and NAME-lines.csv of each analysis, its pictures, and index.html. The folder appears whole: it
// is written under another name first.
void write_folder(const AnalyzeAnswer& answer, const std::filesystem::path& folder);

}  // namespace kvroof
