// The intervals of plan, compare, replay and validate: all of them from the published rows that kvroof ships.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/conformal.hpp"
#include "analysis/scoreboard.hpp"

namespace kvroof {

// Rows of a file, or of those shipped. Throws Error.
std::vector<PublishedRow> read_published_rows(const std::filesystem::path& path);
std::filesystem::path shipped_rows();

// Each row scored with the catalog; the result refers to `rows`.
std::vector<ScoredRow> score_rows(const std::vector<PublishedRow>& rows);

// The table of the shipped rows, which are scored when it is first asked for: about a quarter of a second.
const IntervalTable& shipped_intervals();

// The table of measured runs of servers, validation/serving.csv, read when it is first asked for.
const IntervalTable& served_intervals();

// How far measured runs lie from simulated ones of a device and engine: no limit where none are alike, and on CPUs.
struct ServedErrors {
  struct Of {
    IntervalFactors mean, p90, p99;
  };
  Of first_token, answer;
  // Of a first minute, what takes longer in it: by seconds, for compiling takes as long whatever a step takes.
  std::optional<Of> cold_first_token, cold_answer;
};
// cold: in the first minute of the server.
ServedErrors served_errors(const Device& device, const CostModel& cost, const Reach& reach, bool cold);

// Those of predictions by the model of a device and engine; metric: step, prompt, memory …
IntervalGroup interval_group(const Device& device, const CostModel& cost, const std::string& metric);

// " Measured rows like mi300x took 1.85 times as long as predicted.": behind an answer whose like rows are far off;
// else nothing.
std::string middle_text(const Device& device, const IntervalFactors& factors);

// What a note on intervals adds where a policy's kernels are a part of a width; else nothing.
const char* policy_text(bool policy);
// "… holds for like measured rows (hbm, step: 241 rows …)", for the notes of a result. policy: its kernels are a part
// of the width.
std::string interval_note(const IntervalFactors& factors, bool policy);
// The factors of one of several predictions, and what it is called.
struct NamedFactors {
  std::string name;
  IntervalFactors factors;
  bool policy = false;  // as above
};
// The same of several predictions: what they have in common once, then a note for each group of like measured rows.
// What widens only some predictions of a group is said of the one that is widened most, and of how many others.
std::vector<std::string> interval_notes(const std::vector<NamedFactors>& predictions);

}  // namespace kvroof
