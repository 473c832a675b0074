#include "apps/compare/scatter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "apps/prediction/estimate_text.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

constexpr int kColumns = 64;
constexpr int kRows = 16;
constexpr std::string_view kMarks = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::size_t kLabel = 8;  // characters before the left border

// One axis: from the least to the largest value, logarithmic.
struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;

  void see(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  [[nodiscard]] int cell(double x, int cells) const {
    if (high <= low) return cells / 2;
    const double share = std::log(x / low) / std::log(high / low);
    return std::clamp(static_cast<int>(std::lround(share * (cells - 1))), 0, cells - 1);
  }
  [[nodiscard]] double at(double share) const { return low * std::pow(high / low, share); }
};

std::string grid_text(const std::vector<std::string>& grid, const Axis& y) {
  std::string text;
  for (int row = 0; row < kRows; ++row) {
    const bool labelled = row == 0 || row == kRows / 2 || row == kRows - 1;
    const double share = 1 - static_cast<double>(row) / (kRows - 1);
    text += fmt::format("{:>{}} |{}\n", labelled ? number_text(y.at(share)) : "", kLabel,
                        grid[static_cast<std::size_t>(row)]);
  }
  return text;
}

}  // namespace

std::string scatter_text(const std::vector<ScatterSeries>& all, const std::string& x_title,
                         const std::string& y_title) {
  Axis x, y;
  std::vector<const ScatterSeries*> drawn;
  for (const ScatterSeries& s : all) {
    if (!s.points.empty() && drawn.size() < kMarks.size()) drawn.push_back(&s);
  }
  for (const ScatterSeries* s : drawn) {
    for (const auto& [px, py] : s->points) {
      x.see(px);
      y.see(py);
    }
  }
  if (x.high <= 0) return {};
  std::vector<std::string> grid(kRows, std::string(kColumns, ' '));
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    for (const auto& [px, py] : drawn[i]->points) {
      char& cell = grid[static_cast<std::size_t>(kRows - 1 - y.cell(py, kRows))]
                       [static_cast<std::size_t>(x.cell(px, kColumns))];
      if (cell == ' ') cell = kMarks[i];
    }
  }
  for (std::string& row : grid) row.erase(row.find_last_not_of(' ') + 1);
  const std::string middle = number_text(x.at(0.5));
  std::string text = fmt::format("{:>{}}\n", y_title, std::max(kLabel, y_title.size())) + grid_text(grid, y);
  text += fmt::format("{:>{}} +{:-<{}}\n", "", kLabel, "", kColumns);
  text += fmt::format("{:>{}}  {:<{}}{:<{}}{:>{}}\n", "", kLabel, number_text(x.low), kColumns / 2, middle,
                      kColumns / 2 - 8, number_text(x.high), 8);
  text += fmt::format("{:>{}}  {:^{}}\n", "", kLabel, x_title, kColumns);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    text += fmt::format("{:>{}} {} {}\n", "", kLabel - 2, kMarks[i], drawn[i]->name);
  }
  return text;
}

}  // namespace kvroof
