// An analysis of recorded attention: what it measures of one query head, what came out over all, and the table of all.
//
// A new analysis is one analysis_NAME.cpp and one line in analyses.cpp. It says what it measures (AnalysisInfo) and
// works on one query head of one layer of one sequence at a time (HeadAnalysis); analyze() feeds it and takes means.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/ids.hpp"
#include "sim/core/thread_pool.hpp"
#include "sim/policy/spec.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// The softmax of one query over the tokens that it sees.
struct HeadRow {
  TokenPos query{};
  bool decoded = false;            // false: a row of the prompt
  std::uint32_t first = 0;         // position of the first token that the layer's window shows
  std::span<const float> weights;  // of tokens first … query
  double mass = 1;                 // their sum, 1 up to rounding where the head has no sink
  double sink = 0;                 // the weight of its sink beside them
  // Of analyses that ask for outputs: values of all tokens of the sequence, and Σ weights · values / (mass + sink),
  // [v_width].
  RowsView values;
  std::span<const float> output;

  // Whether token first + i is pivotal: its share exceeds 1/t, t being the tokens that the query sees (Scissorhands).
  [[nodiscard]] bool pivotal(std::size_t i) const {
    return static_cast<double>(weights[i]) * static_cast<double>(weights.size()) > mass;
  }
};

struct HeadContext {
  std::uint32_t prompt = 0;  // tokens of the sequence: prompt, then decoded
  std::uint32_t tokens = 0;
  std::uint32_t v_width = 0;
  [[nodiscard]] std::uint32_t decoded() const { return tokens - prompt; }
};

// What one head gave, in the order of AnalysisInfo: a value for each measure, and for each chart and each of its lines
// a y for each x of the chart's grid. NaN where there is none: it does not count in any mean.
struct HeadValues {
  std::vector<double> measures;
  std::vector<std::vector<double>> lines;
};

// Rows of one query head come in ascending order; objects of different heads work at once.
class HeadAnalysis {
 public:
  virtual ~HeadAnalysis() = default;
  virtual void row(const HeadRow& row) = 0;
  // After the last row.
  virtual HeadValues finish() = 0;
};

enum class MeasureUnit : std::uint8_t { kShare, kTokens, kNumber };  // a share is printed in %

struct MeasureInfo {
  std::string key;    // of JSON and CSV
  std::string title;  // for people
  MeasureUnit unit = MeasureUnit::kShare;
  bool by_layer = false;  // a line of the chart over layers
};

struct AxisInfo {
  std::string label;  // with the unit
  bool log = false;
  bool percent = false;  // values are shares of 0 to 1, printed in %
};

struct ChartInfo {
  std::string key;
  std::string title;
  AxisInfo x, y;
  std::vector<double> grid;  // ascending x
  std::vector<std::string> lines;
  std::vector<std::string> dashed = {};  // of these lines: baselines, bounds, what may lie on another
};

class AnalysisResult;

struct AnalyzeOptions {
  std::uint32_t first_layer = 0;
  std::uint32_t last_layer = UINT32_MAX;  // included; clipped to the trace
  std::vector<PolicySpec> points;         // of the analyses of policies
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// Passes over a trace on behalf of analyses that replay policies: spends progress as it goes.
struct ReplayedTrace {
  const TraceReader& trace;
  const AnalyzeOptions& options;
  ThreadPool& pool;
  std::function<void()> layer_done;  // a layer of a sequence
};

struct AnalysisInfo {
  std::string_view name;              // on the command line and of files
  std::string_view title;             // what a picture or a heading says
  std::string_view definition;        // one or two sentences, with thresholds
  std::string_view source;            // the paper or document behind it
  std::vector<MeasureInfo> measures;  // the first one is drawn as a map
  std::vector<ChartInfo> charts;
  // What the values say, in one or two sentences.
  std::string (*finding)(const AnalysisResult&) = nullptr;

  // Analyses of rows: what they look at, and their work on one head.
  bool prompt_rows = false;  // rows of the prompt as well
  bool outputs = false;
  std::unique_ptr<HeadAnalysis> (*start)(const HeadContext&) = nullptr;
  // Analyses of policies have this instead: adds to a result that has this description.
  void (*replay)(const ReplayedTrace&, AnalysisResult&) = nullptr;
  // And the measures and charts that depend on the policies asked for; may be null.
  void (*adapt)(const AnalyzeOptions&, AnalysisInfo&) = nullptr;
};

// In the order in which results are printed.
std::span<const AnalysisInfo> analysis_table();
// Throws Error (usage) with the nearest name.
const AnalysisInfo& find_analysis(std::string_view name);

// A mean of the values that are there.
struct Mean {
  double sum = 0;
  std::uint64_t count = 0;
  void add(double x);                  // NaN is no value
  [[nodiscard]] double value() const;  // NaN without values
};

// What an analysis found: each sequence counts the same, and so does each query head.
class AnalysisResult {
 public:
  AnalysisResult(AnalysisInfo info, std::uint32_t first_layer, std::uint32_t layers, std::uint32_t heads);

  void add(std::uint32_t layer, std::uint32_t head, const HeadValues& values);

  [[nodiscard]] const AnalysisInfo& info() const { return info_; }
  [[nodiscard]] std::uint32_t first_layer() const { return first_layer_; }
  [[nodiscard]] std::uint32_t layers() const { return layers_; }
  [[nodiscard]] std::uint32_t heads() const { return heads_; }
  // Of one head, of a layer's heads, of all; NaN where there is none. Layers are those of the trace.
  [[nodiscard]] double at(std::size_t measure, std::uint32_t layer, std::uint32_t head) const;
  [[nodiscard]] double of_layer(std::size_t measure, std::uint32_t layer) const;
  [[nodiscard]] double mean(std::size_t measure) const;
  [[nodiscard]] double mean(std::string_view key) const;  // broken invariant when there is no such measure
  // Of line `line` of all charts' lines: y for each x of its chart, over all heads, or a layer's.
  [[nodiscard]] std::vector<double> line(std::size_t line) const;
  [[nodiscard]] std::vector<double> line_of_layer(std::size_t line, std::uint32_t layer) const;
  [[nodiscard]] std::string finding() const { return info_.finding(*this); }

 private:
  [[nodiscard]] std::size_t cell(std::uint32_t layer, std::uint32_t head) const {
    return std::size_t{layer - first_layer_} * heads_ + head;
  }
  AnalysisInfo info_;
  std::uint32_t first_layer_, layers_, heads_;
  std::vector<std::vector<Mean>> measures_;            // [measure][layer, head]
  std::vector<std::vector<std::vector<Mean>>> lines_;  // [line][layer][x]
};

// One pass over the trace for all analyses of rows, and one more for each analysis of policies. Memory as in replay:
// one layer of one sequence, and what the analyses keep of its heads. Results do not depend on the number of threads.
// Throws Error when the trace is damaged, has no decoded token, or lacks the layers.
std::vector<AnalysisResult> analyze(const TraceReader& trace, std::span<const AnalysisInfo* const> analyses,
                                    const AnalyzeOptions& options, ThreadPool& pool);

// Helpers that analyses share.

// "12.3 %"; "–" for NaN.
std::string percent_text(double share);
std::string percent_text(double share, int digits);  // after the point
// Three significant digits; "–" for NaN.
std::string number_text(double x);
inline constexpr double kLongestGrid = 1U << 24;  // tokens
// Lowest and highest are 1 and `most` at most; each power of two times 2^(i / per_octave), rounded, once.
std::vector<double> log_grid(double most, unsigned per_octave = 1);
// from, from + step … to.
std::vector<double> even_grid(double from, double step, double to);
// For each x of the grid, y(x).
template <class Y>
std::vector<double> sample(const std::vector<double>& grid, Y&& y) {
  std::vector<double> values;
  values.reserve(grid.size());
  for (const double x : grid) values.push_back(y(x));
  return values;
}

}  // namespace kvroof
