// Pictures as SVG text: line charts and heat maps with axes, units and a legend, readable on light and dark pages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvroof {

// The numbers on a logarithmic axis: powers of two of counts, and of ten where these would be many or small; powers of
// two; or 1, 2 and 5 times powers of ten, as of times and rates.
enum class LogTicks : std::uint8_t { kCounts, kBinary, kDecimal };

struct PlotAxis {
  std::string label;     // with the unit
  bool log = false;      // values ≤ 0 are left out
  bool percent = false;  // values are shares: the axis goes from 0 to 1 and says 0 to 100
  LogTicks ticks = LogTicks::kCounts;
};

struct PlotLine {
  std::string label;
  std::vector<double> x, y;  // as many of each; where either is NaN the line has a gap
  bool dashed = false;
  bool faint = false;  // thin and grey behind the others, without a place in the legend; named where there is room
  std::vector<std::string> marks{};  // as many, or none: a ring at each point, which says this when pointed at
  std::vector<double> x_low{}, x_high{};  // as many, or none: an interval of each x
};

struct LineChart {
  std::string title;
  PlotAxis x, y;
  std::vector<PlotLine> lines;
};

struct HeatMap {
  std::string title;
  std::string value_label;  // with the unit
  std::string row_label, column_label;
  std::uint32_t rows = 0, columns = 0;
  std::uint32_t first_row = 0;  // number of the first row
  std::vector<std::string> row_names, column_names;  // instead of numbers; as many, or none
  std::vector<double> values;   // [rows, columns]; NaN is left empty
  bool percent = false;
  bool whole_scale = false;     // colours from 0 to 1, whatever the values
};

// Complete files; without any line that has points, a chart that says so.
std::string line_chart_svg(const LineChart& chart);
std::string heat_map_svg(const HeatMap& map);
// Several below each other, each under its title.
std::string line_charts_svg(const std::string& title, std::span<const LineChart> charts);
std::string heat_maps_svg(const std::string& title, std::span<const HeatMap> maps);

// Text for XML: & < > " escaped.
std::string xml_text(std::string_view text);

}  // namespace kvroof
