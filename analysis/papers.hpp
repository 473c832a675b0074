// Experiments of papers as data, and what the cost model says of each: constants are fitted on full attention alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/scoreboard.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

// What is published: tokens_per_s (of all sequences), step_ms, kv_gib, memory_gib, kv_read_ratio (of full attention's),
// largest_batch, fits (1 or 0); published: rows of published.csv.
struct PaperRow {
  std::string model, policy = "full", note;
  double kept = 0;  // of the prompt; 0: everything
  std::uint32_t batch = 1, prompt = 1, output = 0;
  double value = 0;
  std::optional<double> band;        // largest error that is allowed; nothing: the row is reported
  std::optional<double> band_after;  // with the table's policy constant
};

struct PaperTable {
  std::string figure, about, metric, model, device, engine;
  std::string published;     // how the groups of the scoreboard begin whose rows these are
  std::uint32_t beams = 1;   // sequences for each of the batch
  double memory_gib = 0;     // of largest_batch: weights and cache alone in so much
  bool fit = false;          // a time a step and one a byte of cache, on the rows of full attention alone
  bool policy_constant = false;  // and then one a byte of cache on the other rows, reported beside
  std::string order;         // of predictions as of values: all rows; prompt: those of the same prompt and batch
  std::vector<PaperRow> rows;
};

struct Paper {
  std::string name, title, source;
  std::vector<PaperTable> tables;
};

// validation/papers/*.yaml, strict: unknown keys and missing fields are refused with their line.
Result<Paper> paper_from_yaml(std::string_view text);
std::vector<Paper> read_papers(const std::filesystem::path& folder);

struct PaperScore {
  const PaperRow* row = nullptr;
  double unfitted = 0;          // before anything is fitted
  double predicted = 0;         // with what the rows of full attention say
  std::optional<double> after;  // with the policy constant, of rows that are not of full attention

  [[nodiscard]] double error() const { return error_of(predicted); }
  [[nodiscard]] double error_of(double x) const { return row->value != 0 ? x / row->value - 1 : x; }
  [[nodiscard]] bool met() const;
};

struct TableScore {
  const Paper* paper = nullptr;
  const PaperTable* table = nullptr;
  std::vector<GroupScore> published;  // of the scoreboard, with the intervals that its rows have
  std::vector<PaperScore> rows;
  double step_seconds = 0, cache_passes = 0;  // fitted on full attention
  double policy_passes = 0;                   // fitted on the others; passes over the cache at the memory's peak
  std::size_t misordered = 0;                 // pairs

  // Mean of the absolute errors of the rows of full attention, or of the others; nothing without such rows.
  [[nodiscard]] std::optional<double> mean_error(bool of_full, bool after_constant = false) const;
};
TableScore score_table(const Paper& paper, const PaperTable& table, const std::filesystem::path& catalog,
                       std::span<const ScoredRow> published);
std::vector<Gate> gates_of(const std::vector<TableScore>& tables);

}  // namespace kvroof
