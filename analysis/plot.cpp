#include "analysis/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/plot_svg.hpp"

namespace kvroof {
namespace {

using svg::Anchor;

constexpr double kLeft = 66, kRight = svg::kWidth - 22;
constexpr double kPlotHeight = 260;
constexpr double kTallPlotHeight = 440;  // of many lines
constexpr std::size_t kColours = 6;

bool any_faint(const std::vector<PlotLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const PlotLine& line) { return line.faint; });
}

// A colour for each line, and where these are used up a stroke of its own; a dashed line is what the others are held
// against, in the colour of the text.
std::string style_of(std::size_t i, bool dashed) {
  constexpr std::array<std::string_view, 3> kStrokes = {"", " dotted", " dash-dot"};
  if (dashed) return "line ink dashed";
  return fmt::format("line c{}{}", i % kColours, kStrokes[i / kColours % kStrokes.size()]);
}

// The style of each line: faint ones take no colour from the others.
std::vector<std::string> styles_of(const std::vector<PlotLine>& lines) {
  std::vector<std::string> styles;
  std::size_t coloured = 0;
  for (const PlotLine& line : lines) styles.push_back(line.faint ? "line faint" : style_of(coloured++, line.dashed));
  return styles;
}

// One entry a line, in rows that fit the width; `y` becomes the bottom.
std::string legend(const std::vector<PlotLine>& lines, const std::vector<std::string>& styles, double& y) {
  std::string out;
  double x = kLeft;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].faint) continue;
    const double width = 34 + svg::width_of(lines[i].label, 6.9) + 18;
    if (x > kLeft && x + width > kRight) {
      x = kLeft;
      y += 19;
    }
    out += svg::line(x, y - 4, x + 26, y - 4, styles[i]);
    out += svg::text(x + 33, y, lines[i].label, "label", Anchor::kStart);
    x += width;
  }
  return out;
}

std::string path_of(const PlotLine& line, const svg::Scale& x, const svg::Scale& y, const std::string& style) {
  std::string path;
  bool drawing = false;
  for (std::size_t i = 0; i < line.x.size(); ++i) {
    const bool shown = x.shows(line.x[i]) && y.shows(line.y[i]);
    if (shown) path += fmt::format("{}{:.1f},{:.1f} ", drawing ? "L" : "M", x.place(line.x[i]), y.place(line.y[i]));
    drawing = shown;
  }
  if (path.empty()) return "";
  // A reader of the file in a browser gets the name of a faint line by pointing at it.
  return line.faint ? fmt::format("<path class=\"{}\" d=\"{}\"><title>{}</title></path>\n", style, path,
                                  xml_text(line.label))
                    : fmt::format("<path class=\"{}\" d=\"{}\"/>\n", style, path);
}

// The colour of a style of a line.
std::string colour_class(const std::string& style) {
  const std::size_t begin = style.find(' ') + 1;
  return style.substr(begin, style.find(' ', begin) - begin);
}

// Intervals, and over them the rings.
std::string marks_of(const PlotLine& line, const svg::Scale& x, const svg::Scale& y, const std::string& style) {
  const std::string colour = colour_class(style);
  std::string intervals, rings;
  for (std::size_t i = 0; i < line.marks.size(); ++i) {
    if (!x.shows(line.x[i]) || !y.shows(line.y[i])) continue;
    const double at = y.place(line.y[i]);
    if (!line.x_low.empty() && x.shows(line.x_low[i]) && x.shows(line.x_high[i])) {
      intervals += svg::line(x.place(line.x_low[i]), at, x.place(line.x_high[i]), at, "interval " + colour);
    }
    rings += fmt::format("<circle class=\"mark {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.4\"><title>{}</title></circle>\n",
                         colour, x.place(line.x[i]), at, xml_text(line.marks[i]));
  }
  return intervals + rings;
}

struct Box {
  double left, right, top, bottom;
  [[nodiscard]] bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Around the pieces of the lines that names must not cover.
std::vector<Box> coloured_pieces(const LineChart& chart, const svg::Scale& x, const svg::Scale& y) {
  std::vector<Box> boxes;
  for (const PlotLine& line : chart.lines) {
    for (std::size_t i = 1; i < line.x.size() && !line.faint; ++i) {
      if (!x.shows(line.x[i - 1]) || !x.shows(line.x[i]) || !y.shows(line.y[i - 1]) || !y.shows(line.y[i])) continue;
      const auto [left, right] = std::minmax({x.place(line.x[i - 1]), x.place(line.x[i])});
      const auto [top, bottom] = std::minmax({y.place(line.y[i - 1]), y.place(line.y[i])});
      boxes.push_back({left, right, top - 1, bottom + 1});
    }
  }
  return boxes;
}

// Names of faint lines to the left of their left ends, the first first, where they meet neither each other nor colours.
std::string faint_names(const LineChart& chart, const svg::Scale& x, const svg::Scale& y) {
  constexpr double kHalfLine = 5.5, kLetter = 5.4;
  std::vector<Box> taken = coloured_pieces(chart, x, y);
  std::string out;
  for (const PlotLine& line : chart.lines) {
    if (!line.faint || line.x.empty()) continue;
    const std::size_t end = line.x.front() < line.x.back() ? 0 : line.x.size() - 1;
    if (!x.shows(line.x[end]) || !y.shows(line.y[end])) continue;
    const double right = x.place(line.x[end]) - 4, middle = y.place(line.y[end]);
    const Box box{right - svg::width_of(line.label, kLetter), right, middle - kHalfLine, middle + kHalfLine};
    if (box.left < kLeft || std::ranges::any_of(taken, [&](const Box& other) { return box.meets(other); })) continue;
    taken.push_back(box);
    out += svg::text(right, middle + 3, line.label, "faint-name", Anchor::kEnd);
  }
  return out;
}

std::string axes(const LineChart& chart, const svg::Scale& x, const svg::Scale& y, double top, double bottom) {
  std::string out;
  for (const svg::Scale::Tick& tick : y.ticks()) {
    out += svg::line(kLeft, tick.at, kRight, tick.at, "grid");
    out += svg::text(kLeft - 8, tick.at + 4, tick.label, "tick", Anchor::kEnd);
  }
  for (const svg::Scale::Tick& tick : x.ticks()) {
    out += svg::line(tick.at, bottom, tick.at, bottom + 5, "axis");
    out += svg::text(tick.at, bottom + 19, tick.label, "tick", Anchor::kMiddle);
  }
  out += svg::line(kLeft, bottom, kRight, bottom, "axis");
  out += svg::text((kLeft + kRight) / 2, bottom + 40, chart.x.label, "label", Anchor::kMiddle);
  return out + svg::upright_text(18, (top + bottom) / 2, chart.y.label, "label");
}

// Samples of viridis (van der Walt and Smith 2015), which is ordered by lightness also without colour.
constexpr std::array<std::array<double, 3>, 9> kViridis = {{{68, 1, 84},
                                                            {71, 44, 122},
                                                            {59, 81, 139},
                                                            {44, 113, 142},
                                                            {33, 144, 141},
                                                            {39, 173, 129},
                                                            {92, 200, 99},
                                                            {170, 220, 50},
                                                            {253, 231, 37}}};

std::string colour_of(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * (kViridis.size() - 1);
  const auto i = std::min(static_cast<std::size_t>(place), kViridis.size() - 2);
  std::string colour = "#";
  for (std::size_t c = 0; c < 3; ++c) {
    const double value = kViridis[i][c] + (place - static_cast<double>(i)) * (kViridis[i + 1][c] - kViridis[i][c]);
    colour += fmt::format("{:02x}", static_cast<int>(std::lround(value)));
  }
  return colour;
}

std::string value_text(const HeatMap& map, double value) {
  return map.percent ? fmt::format("{:.3g}", value * 100) : fmt::format("{:.3g}", value);
}

// Numbers along rows or columns: so many that they do not touch.
std::uint32_t number_step(double cell, double least) {
  for (std::uint32_t step = 1;; step *= 2) {
    if (cell * step >= least || step > 1024) return step;
  }
}

std::string colour_bar(const HeatMap& map, double low, double high, double x, double top, double height) {
  constexpr int kSteps = 64;
  std::string out;
  for (int i = 0; i < kSteps; ++i) {
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"16\" height=\"{:.2f}\" fill=\"{}\"/>\n", x,
                       top + height * (kSteps - 1 - i) / kSteps, height / kSteps + 0.5,
                       colour_of(static_cast<double>(i) / (kSteps - 1)));
  }
  for (const double share : {0.0, 0.5, 1.0}) {
    out += svg::text(x + 22, top + height * (1 - share) + 4, value_text(map, low + share * (high - low)), "tick",
                     Anchor::kStart);
  }
  return out;
}

std::string name_of(const std::vector<std::string>& names, std::uint32_t first, std::uint32_t i) {
  return names.empty() ? std::to_string(first + i) : names[i];
}

std::string cells(const HeatMap& map, double low, double high, double top, double width, double height) {
  std::string out;
  for (std::uint32_t row = 0; row < map.rows; ++row) {
    for (std::uint32_t column = 0; column < map.columns; ++column) {
      const double value = map.values[std::size_t{row} * map.columns + column];
      if (std::isnan(value)) continue;
      const double share = high > low ? (value - low) / (high - low) : 0.5;
      out += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"><title>{} {}, {} {}: "
          "{}{}</title></rect>\n",
          kLeft + column * width, top + row * height, width - (width > 6 ? 1 : 0), height - (height > 6 ? 1 : 0),
          colour_of(share), xml_text(map.row_label), xml_text(name_of(map.row_names, map.first_row, row)),
          xml_text(map.column_label), xml_text(name_of(map.column_names, 0, column)),
          value_text(map, value), map.percent ? " %" : "");
    }
  }
  return out;
}

constexpr double kTitle = 8, kMapTop = 64;

double row_height(const HeatMap& map) { return std::clamp(360.0 / map.rows, 5.0, 34.0); }
double height_of(const HeatMap& map) { return kMapTop + row_height(map) * map.rows + 56; }

// All of a map but the page and its title.
std::string body_of(const HeatMap& map) {
  double low = map.whole_scale ? 0 : INFINITY;
  double high = map.whole_scale ? 1 : -INFINITY;
  for (const double value : map.values) {
    if (std::isnan(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const double right = kRight - 74;
  const double width = (right - kLeft) / map.columns;
  const double height = row_height(map);
  const double bottom = kMapTop + height * map.rows;
  std::string out = svg::text(kRight, 52, map.value_label, "label", Anchor::kEnd) +
                    svg::text((kLeft + right) / 2, bottom + 40, map.column_label, "label", Anchor::kMiddle) +
                    svg::upright_text(18, (kMapTop + bottom) / 2, map.row_label, "label");
  const std::uint32_t row_step = number_step(height, 14);
  for (std::uint32_t row = 0; row < map.rows; row += row_step) {
    out += svg::text(kLeft - 8, kMapTop + (row + 0.5) * height + 4, name_of(map.row_names, map.first_row, row), "tick",
                     Anchor::kEnd);
  }
  const std::uint32_t column_step = number_step(width, 26);
  for (std::uint32_t column = 0; column < map.columns; column += column_step) {
    out += svg::text(kLeft + (column + 0.5) * width, bottom + 18, name_of(map.column_names, 0, column), "tick",
                     Anchor::kMiddle);
  }
  if (low > high) return out;
  return out + cells(map, low, high, kMapTop, width, height) +
         colour_bar(map, low, high, right + 18, kMapTop, bottom - kMapTop);
}

constexpr double kLegend = 52;  // of a chart alone

// All of a chart but the page and its title, from its legend at `y`, which becomes its bottom.
std::string body_of(const LineChart& chart, double& y) {
  const std::vector<std::string> styles = styles_of(chart.lines);
  const std::string names = legend(chart.lines, styles, y);
  const bool faint = any_faint(chart.lines);
  const double top = y + 18;
  const double bottom = top + (faint ? kTallPlotHeight : kPlotHeight);
  std::vector<double> xs;
  std::vector<double> ys;
  for (const PlotLine& line : chart.lines) {
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      if (std::isnan(line.y[i])) continue;
      xs.push_back(line.x[i]);
      ys.push_back(line.y[i]);
      if (!line.x_high.empty()) xs.push_back(line.x_high[i]);
    }
  }
  const svg::Scale x_scale(chart.x, xs, kLeft, kRight);
  const svg::Scale y_scale(chart.y, ys, bottom, top);
  std::string out = names + axes(chart, x_scale, y_scale, top, bottom);
  for (const bool behind : {true, false}) {
    for (std::size_t i = 0; i < chart.lines.size(); ++i) {
      const PlotLine& line = chart.lines[i];
      if (line.faint == behind) out += path_of(line, x_scale, y_scale, styles[i]);
    }
    for (std::size_t i = 0; i < chart.lines.size(); ++i) {
      const PlotLine& line = chart.lines[i];
      if (line.faint == behind) out += marks_of(line, x_scale, y_scale, styles[i]);
    }
  }
  if (faint) out += faint_names(chart, x_scale, y_scale);
  if (xs.empty()) out += svg::text((kLeft + kRight) / 2, (top + bottom) / 2, "no values", "label", Anchor::kMiddle);
  y = bottom + 56;
  return out;
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  double y = kLegend;
  const std::string body = body_of(chart, y);
  return svg::open_picture(y, chart.title) + body + "</svg>\n";
}

std::string line_charts_svg(const std::string& title, std::span<const LineChart> charts) {
  double y = kTitle;
  std::string out;
  for (const LineChart& chart : charts) {
    out += svg::text(kLeft, y + 46, chart.title, "label strong", Anchor::kStart);
    y += 70;
    out += body_of(chart, y);
  }
  return svg::open_picture(y, title) + out + "</svg>\n";
}

std::string heat_map_svg(const HeatMap& map) {
  return svg::open_picture(height_of(map), map.title) + body_of(map) + "</svg>\n";
}

std::string heat_maps_svg(const std::string& title, std::span<const HeatMap> maps) {
  double height = kTitle;
  std::string out;
  for (const HeatMap& map : maps) {
    out += fmt::format("<g transform=\"translate(0 {:.1f})\">\n", height) +
           svg::text(kLeft, 50, map.title, "label", Anchor::kStart) + body_of(map) + "</g>\n";
    height += height_of(map);
  }
  return svg::open_picture(height, title) + out + "</svg>\n";
}

}  // namespace kvroof
