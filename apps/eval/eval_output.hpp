// What `kvroof eval` prints: a row for each policy and budget, what its numbers mean, and the details of each example.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/cli/output.hpp"
#include "apps/eval/eval_tasks.hpp"

namespace kvroof {

struct EvalTable {
  Table table;
  std::vector<std::string> footnotes;  // what belongs to the table of people
};
// Points in the order of the rows; the first is full attention, with which the others are compared. For people the
// table leaves out what would not fit a terminal.
EvalTable eval_table(const Examples& examples, std::span<const EvalPoint> points, Format format);

// Sentences on what was measured and how, for people.
std::vector<std::string> eval_notes(const EvalRun& run, std::span<const EvalPoint> points);

// A JSON line for each example and point.
std::string eval_details(const Examples& examples, std::span<const EvalPoint> points);

}  // namespace kvroof
