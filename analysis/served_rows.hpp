// Measured runs of servers beside what was simulated for them: how far percentiles of requests lie from predictions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/conformal.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

// What a server is in while it is measured.
enum class ServedState : std::uint8_t {
  kRunning,      // it has served for a while
  kCold,         // its first minute
  kColdExperts,  // likewise, of a mixture of experts, whose kernels are compiled as they are first needed
};
ServedState served_state(bool cold, bool experts);

// The metric of a RowKind for figures (mean, p90, p99) of first tokens and of whole answers, of which a token errs as
// the answer does. Answers of dense models take as long in the first minute as later.
std::string served_first_token_metric(ServedState state, std::string_view figure);
std::string served_answer_metric(ServedState state, std::string_view figure);

// Runs of one model err alike, and are the table of a residual; what is predicted is of another model. They are few: of
// three the farthest is the interval.
inline constexpr IntervalTable::Sampling kServedRuns = {3, true};

// The residuals of a CSV file in the columns of validation/serving.csv: a run's first tokens and answers beside the
// column kvroof_ms, in logarithms and in seconds (their scores are 0). Its other metrics are left out: they follow from
// these. The set `first 300` is of first minutes. Sequences at once are the rate times the mean answer (Little 1961).
// Refuses a file without these columns and numbers that are none or not above 0, naming the line. Names of devices and
// models are those of the catalog; throws Error for one that it lacks.
Result<std::vector<Residual>> served_residuals(std::string_view csv, const std::filesystem::path& catalog);

}  // namespace kvroof
