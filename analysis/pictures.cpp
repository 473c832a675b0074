#include "analysis/pictures.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/plot.hpp"

namespace kvroof {
namespace {

PlotAxis axis_of(const AxisInfo& axis) { return {axis.label, axis.log, axis.percent}; }

// `line` is the number of the chart's first line among all.
LineChart chart_of(const AnalysisResult& result, const ChartInfo& info, std::size_t line) {
  LineChart chart{info.title, axis_of(info.x), axis_of(info.y), {}};
  for (const std::string& label : info.lines) {
    const bool dashed = std::find(info.dashed.begin(), info.dashed.end(), label) != info.dashed.end();
    chart.lines.push_back({label, info.grid, result.line(line++), dashed});
  }
  return chart;
}

const char* unit_label(MeasureUnit unit) {
  return unit == MeasureUnit::kShare ? "%" : unit == MeasureUnit::kTokens ? "tokens" : "";
}

LineChart chart_over_layers(const AnalysisResult& result) {
  const AnalysisInfo& info = result.info();
  LineChart chart{std::string(info.title) + ", by layer", {"layer", false, false}, {"", false, false}, {}};
  for (std::size_t m = 0; m < info.measures.size(); ++m) {
    if (!info.measures[m].by_layer) continue;
    chart.y = {fmt::format("mean over heads ({})", unit_label(info.measures[m].unit)), false,
               info.measures[m].unit == MeasureUnit::kShare};
    if (info.measures[m].unit == MeasureUnit::kNumber) chart.y.label = "mean over heads";
    PlotLine line{info.measures[m].title, {}, {}, false};
    for (std::uint32_t layer = result.first_layer(); layer < result.first_layer() + result.layers(); ++layer) {
      line.x.push_back(layer);
      line.y.push_back(result.of_layer(m, layer));
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

// The first measure has a map, and where it is that of one policy, those of the others likewise.
bool has_map(const AnalysisInfo& info, std::size_t m) {
  const auto kind = [&](std::size_t i) {
    const std::string& key = info.measures[i].key;  // share_for_90, or h2o:budget=0.5.recall
    return key.substr(key.rfind('.') == std::string::npos ? 0 : key.rfind('.'));
  };
  return kind(m) == kind(0);
}

HeatMap map_of(const AnalysisResult& result, std::size_t m) {
  const MeasureInfo& measure = result.info().measures[m];
  HeatMap map;
  map.title = std::string(result.info().title) + ", by layer and head";
  map.value_label = measure.title;
  if (measure.unit == MeasureUnit::kShare) map.value_label += " (%)";
  map.row_label = "layer";
  map.column_label = "query head";
  map.rows = result.layers();
  map.columns = result.heads();
  map.first_row = result.first_layer();
  map.percent = measure.unit == MeasureUnit::kShare;
  for (std::uint32_t layer = 0; layer < map.rows; ++layer) {
    for (std::uint32_t head = 0; head < map.columns; ++head) {
      map.values.push_back(result.at(m, result.first_layer() + layer, head));
    }
  }
  return map;
}

constexpr std::string_view kPageHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><title>kvroof analyses</title>
<style>
body{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;line-height:1.5;max-width:1340px;margin:2rem auto;
padding:0 1rem;background:#fff;color:#1f2328}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin:2.5rem 0 .3rem}p{max-width:52rem;margin:.3rem 0}
.finding{font-weight:600}.how{color:#57606a;font-size:.92rem}
.pictures{display:flex;flex-wrap:wrap;gap:1rem;margin-top:.8rem}
svg{max-width:100%;height:auto;border:1px solid #d8dee4;border-radius:6px}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}.how{color:#9ba5b0}svg{border-color:#262d36}}
</style></head><body>
)";

}  // namespace

std::vector<Picture> pictures_of(const AnalysisResult& result) {
  const AnalysisInfo& info = result.info();
  const std::string name(info.name);
  std::vector<Picture> pictures;
  std::size_t line = 0;
  for (const ChartInfo& chart : info.charts) {
    pictures.push_back({name + "-" + chart.key, line_chart_svg(chart_of(result, chart, line))});
    line += chart.lines.size();
  }
  const LineChart layers = chart_over_layers(result);
  if (!layers.lines.empty() && result.layers() > 1) pictures.push_back({name + "-layers", line_chart_svg(layers)});
  std::size_t maps = 0;
  for (std::size_t m = 0; m < info.measures.size(); ++m) {
    if (!has_map(info, m)) continue;
    const std::string number = ++maps > 1 ? fmt::format("-{}", maps) : "";
    pictures.push_back({name + "-map" + number, heat_map_svg(map_of(result, m))});
  }
  return pictures;
}

std::string html_page(const std::string& about, std::span<const AnalysisResult> results) {
  std::string page(kPageHead);
  page += fmt::format("<h1>What the attention of this run does</h1>\n<p>{}</p>\n", xml_text(about));
  for (const AnalysisResult& result : results) {
    const AnalysisInfo& info = result.info();
    page += fmt::format(
        "<h2 id=\"{}\">{}</h2>\n<p class=\"finding\">{}</p>\n<p class=\"how\">{} Source: {}.</p>\n<div "
        "class=\"pictures\">\n",
        info.name, xml_text(info.title), xml_text(result.finding()), xml_text(info.definition), xml_text(info.source));
    for (const Picture& picture : pictures_of(result)) page += picture.svg;
    page += "</div>\n";
  }
  return page + "</body></html>\n";
}

}  // namespace kvroof
