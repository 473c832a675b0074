// What a reader of a picture must be able to tell apart.
#include <set>
#include <string>

#include "analysis/plot.hpp"
#include "analysis/plot_svg.hpp"
#include "tests/catch.hpp"

using kvroof::LineChart;
using kvroof::PlotLine;

namespace {

// The styles of the drawn lines, in their order.
std::vector<std::string> styles_of(const std::string& svg) {
  std::vector<std::string> styles;
  const std::string begin = "<path class=\"";
  for (std::size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    const std::size_t from = at + begin.size();
    styles.push_back(svg.substr(from, svg.find('"', from) - from));
  }
  return styles;
}

LineChart chart_of(std::size_t lines) {
  LineChart chart{"a title", {"x"}, {"y"}, {}};
  for (std::size_t i = 0; i < lines; ++i) {
    chart.lines.push_back(PlotLine{"line " + std::to_string(i), {1, 2}, {static_cast<double>(i), 3}, false});
  }
  return chart;
}

}  // namespace

TEST_CASE("fourteen lines of a chart have fourteen styles, each of which the picture defines") {
  const std::string svg = line_chart_svg(chart_of(14));
  const std::vector<std::string> styles = styles_of(svg);
  REQUIRE(styles.size() == 14);
  CHECK(std::set<std::string>(styles.begin(), styles.end()).size() == 14);
  for (const std::string& style : styles) {
    CHECK(svg.find(".kvroof ." + style.substr(style.rfind(' ') + 1) + "{") != std::string::npos);
  }
}

TEST_CASE("a long title is set so small that it ends inside the picture, a short one is not") {
  const auto size_of = [](std::size_t letters) {
    LineChart chart = chart_of(1);
    chart.title = std::string(letters, 'W');
    const std::string svg = line_chart_svg(chart);
    const std::string begin = "style=\"font-size:";
    return std::stod(svg.substr(svg.find(begin) + begin.size()));
  };
  CHECK(size_of(20) == 15);
  // A letter is 8.9 / 15 of the size wide, and the picture 640 with two margins of 16.
  for (const std::size_t letters : {75, 100, 150}) {
    CHECK(size_of(letters) * 8.9 / 15 * static_cast<double>(letters) < 640 - 16 - 10);
  }
}

TEST_CASE("a dashed line, which others are held against, has the colour of the text and none of theirs") {
  LineChart chart = chart_of(3);
  chart.lines[1].dashed = true;
  const std::vector<std::string> styles = styles_of(line_chart_svg(chart));
  REQUIRE(styles.size() == 3);
  CHECK(styles[1] == "line ink dashed");
  CHECK(styles[0].find("ink") == std::string::npos);
  CHECK(styles[2].find("ink") == std::string::npos);
}

TEST_CASE("faint lines lie behind the others, take no colour of theirs and are named beside them, not in the legend") {
  LineChart chart = chart_of(3);
  chart.lines[0].faint = true;
  const std::string plain = line_chart_svg(chart_of(2));
  const std::string svg = line_chart_svg(chart);
  CHECK(styles_of(svg) == std::vector<std::string>{"line faint", "line c0", "line c1"});
  CHECK(styles_of(plain) == std::vector<std::string>{"line c0", "line c1"});
  CHECK(svg.find("<title>line 0</title>") != std::string::npos);
  const auto times = [&](const std::string& text) {
    std::size_t count = 0;
    for (std::size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++count;
    return count;
  };
  CHECK(times("<text class=\"label\" x=\"99.0\"") == 1);  // one row of the legend, which begins with a name
  CHECK(times("class=\"faint-name\"") == 1);
  CHECK(times(">line 0</text>") == 1);
}

TEST_CASE("of faint lines that end at one place one is named") {
  LineChart chart{"a title", {"x"}, {"y"}, {}};
  for (int i = 0; i < 40; ++i) {
    chart.lines.push_back(PlotLine{"name " + std::to_string(i), {8, 10}, {i < 39 ? 5.0 : 1.0, 9}, false, true});
  }
  const std::string svg = line_chart_svg(chart);
  CHECK(svg.find(">name 0</text>") != std::string::npos);
  CHECK(svg.find(">name 39</text>") != std::string::npos);
  for (int i = 1; i < 39; ++i) CHECK(svg.find(">name " + std::to_string(i) + "</text>") == std::string::npos);
  CHECK(svg.find("class=\"line faint\" d=") != std::string::npos);
}

TEST_CASE("a logarithmic axis of times has 1, 2 and 5 times powers of ten around its values, a wide one the powers") {
  using Labels = std::vector<std::string>;
  const auto labels_of = [](const std::vector<double>& values) {
    const kvroof::PlotAxis axis{"ms", true, false, kvroof::LogTicks::kDecimal};
    Labels labels;
    for (const auto& tick : kvroof::svg::Scale(axis, values, 0, 100).ticks()) labels.push_back(tick.label);
    return labels;
  };
  CHECK(labels_of({130, 870}) == Labels{"100", "200", "500", "1000"});
  CHECK(labels_of({200, 2000}) == Labels{"200", "500", "1000", "2000"});
  CHECK(labels_of({0.3, 0.4}) == Labels{"0.2", "0.5"});
  CHECK(labels_of({50}) == Labels{"50", "100"});
  CHECK(labels_of({1.5, 150000}) == Labels{"1", "10", "100", "1000", "10000", "100000", "1e+06"});
  CHECK(labels_of({1e-9, 1e9}).size() <= 11);
  const kvroof::svg::Scale scale({"ms", true, false, kvroof::LogTicks::kDecimal}, {130, 870}, 0, 90);
  CHECK(scale.place(100) == Approx(0).margin(1e-9));
  CHECK(scale.place(1000) == Approx(90));
}

TEST_CASE("a line with marks has a ring at each of its points, which says what it is, and its intervals under them") {
  LineChart chart = chart_of(2);
  chart.lines[1].marks = {"half & half", "all of it"};
  chart.lines[1].x_low = {0.5, 1.5};
  chart.lines[1].x_high = {1.5, 4};
  const std::string svg = line_chart_svg(chart);
  CHECK(svg.find("<circle class=\"mark c1\"") != std::string::npos);
  CHECK(svg.find("<circle class=\"mark c0\"") == std::string::npos);
  CHECK(svg.find("<title>half &amp; half</title>") != std::string::npos);
  CHECK(svg.find("<title>all of it</title>") != std::string::npos);
  CHECK(svg.find("class=\"interval c1\"") < svg.find("<circle"));
}

TEST_CASE("the axis of a chart reaches to the ends of its intervals") {
  LineChart chart = chart_of(1);
  chart.lines[0].marks = {"a", "b"};
  chart.lines[0].x_low = {1, 2};
  chart.lines[0].x_high = {1, 40};
  CHECK(line_chart_svg(chart).find(">40</text>") != std::string::npos);
}

TEST_CASE("charts below each other are each under their title, and one ends before the next begins") {
  const std::vector<LineChart> charts = {chart_of(1), chart_of(3)};
  const std::string svg = line_charts_svg("both", charts);
  CHECK(styles_of(svg) == std::vector<std::string>{"line c0", "line c0", "line c1", "line c2"});
  // Heights of the first and the second text that says so.
  const auto heights_of = [&](const std::string& words) {
    std::vector<double> heights;
    const std::string found = ">" + words + "<";
    for (std::size_t at = svg.find(found); at != std::string::npos; at = svg.find(found, at + 1)) {
      heights.push_back(std::stod(svg.substr(svg.rfind("y=\"", at) + 3)));
    }
    REQUIRE(heights.size() == 2);
    return heights;
  };
  const std::vector<double> titles = heights_of("a title"), bottoms = heights_of("x"), names = heights_of("line 0");
  for (const std::size_t chart : {0, 1}) {
    CHECK(titles[chart] < names[chart]);
    CHECK(names[chart] < bottoms[chart]);
  }
  CHECK(bottoms[0] + 12 < titles[1]);
}
