#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/analysis.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<double> values_of(const std::vector<Mean>& means) {
  std::vector<double> values;
  for (const Mean& mean : means) values.push_back(mean.value());
  return values;
}

}  // namespace

void Mean::add(double x) {
  if (std::isnan(x)) return;
  sum += x;
  ++count;
}

double Mean::value() const { return count == 0 ? kNone : sum / static_cast<double>(count); }

AnalysisResult::AnalysisResult(AnalysisInfo info, std::uint32_t first_layer, std::uint32_t layers, std::uint32_t heads)
    : info_(std::move(info)), first_layer_(first_layer), layers_(layers), heads_(heads) {
  measures_.assign(info_.measures.size(), std::vector<Mean>(std::size_t{layers} * heads));
  for (const ChartInfo& chart : info_.charts) {
    const std::vector<std::vector<Mean>> empty(layers, std::vector<Mean>(chart.grid.size()));
    lines_.insert(lines_.end(), chart.lines.size(), empty);
  }
}

void AnalysisResult::add(std::uint32_t layer, std::uint32_t head, const HeadValues& values) {
  check(values.measures.size() == measures_.size() && values.lines.size() == lines_.size(),
        "a head gives what its analysis describes");
  for (std::size_t m = 0; m < measures_.size(); ++m) measures_[m][cell(layer, head)].add(values.measures[m]);
  for (std::size_t l = 0; l < lines_.size(); ++l) {
    std::vector<Mean>& means = lines_[l][layer - first_layer_];
    check(values.lines[l].size() == means.size(), "a line has a y for each x");
    for (std::size_t i = 0; i < means.size(); ++i) means[i].add(values.lines[l][i]);
  }
}

double AnalysisResult::at(std::size_t measure, std::uint32_t layer, std::uint32_t head) const {
  return measures_[measure][cell(layer, head)].value();
}

double AnalysisResult::of_layer(std::size_t measure, std::uint32_t layer) const {
  Mean mean;
  for (std::uint32_t head = 0; head < heads_; ++head) mean.add(at(measure, layer, head));
  return mean.value();
}

double AnalysisResult::mean(std::size_t measure) const {
  Mean mean;
  for (const Mean& of_head : measures_[measure]) mean.add(of_head.value());
  return mean.value();
}

double AnalysisResult::mean(std::string_view key) const {
  const auto& infos = info_.measures;
  const auto found = std::find_if(infos.begin(), infos.end(), [&](const MeasureInfo& m) { return m.key == key; });
  check(found != infos.end(), "the analysis has the measure");
  return mean(static_cast<std::size_t>(found - infos.begin()));
}

std::vector<double> AnalysisResult::line(std::size_t line) const {
  std::vector<Mean> means(lines_[line].empty() ? 0 : lines_[line][0].size());
  for (const std::vector<Mean>& of_layer : lines_[line]) {
    for (std::size_t i = 0; i < means.size(); ++i) {
      means[i].sum += of_layer[i].sum;
      means[i].count += of_layer[i].count;
    }
  }
  return values_of(means);
}

std::vector<double> AnalysisResult::line_of_layer(std::size_t line, std::uint32_t layer) const {
  return values_of(lines_[line][layer - first_layer_]);
}

std::string percent_text(double share) {
  if (std::isnan(share)) return "–";
  const double percent = share * 100;
  return fmt::format("{:.{}f} %", percent, std::abs(percent) < 9.995 && percent != 0 ? 2 : 1);
}

std::string percent_text(double share, int digits) { return fmt::format("{:.{}f} %", 100 * share, digits); }

std::vector<double> log_grid(double most, unsigned per_octave) {
  std::vector<double> grid;
  for (unsigned i = 0;; ++i) {
    const double x = std::round(std::exp2(static_cast<double>(i) / per_octave));
    if (x > most) return grid;
    if (grid.empty() || x > grid.back()) grid.push_back(x);
  }
}

std::vector<double> even_grid(double from, double step, double to) {
  std::vector<double> grid;
  const auto count = static_cast<unsigned>(std::lround((to - from) / step));
  for (unsigned i = 0; i <= count; ++i) grid.push_back(from + i * step);
  return grid;
}

}  // namespace kvroof
