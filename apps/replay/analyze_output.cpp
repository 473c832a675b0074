#include "apps/replay/analyze_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "analysis/pictures.hpp"
#include "apps/cli/table.hpp"
#include "kvroof_version.hpp"
#include "sim/core/files.hpp"
#include "sim/core/number_text.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

Json json_number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

std::string raw(double x) { return std::isfinite(x) ? fmt::format("{}", x) : std::string(); }

std::string shown(double x, MeasureUnit unit) { return unit == MeasureUnit::kShare ? percent_text(x) : number_text(x); }

// A head that stands out.
struct Extreme {
  double value = std::nan("");
  std::uint32_t layer = 0, head = 0;
};

template <class Before>
Extreme extreme_of(const AnalysisResult& result, std::size_t measure, Before before) {
  Extreme found;
  for (std::uint32_t layer = result.first_layer(); layer < result.first_layer() + result.layers(); ++layer) {
    for (std::uint32_t head = 0; head < result.heads(); ++head) {
      const double value = result.at(measure, layer, head);
      if (!std::isnan(value) && (std::isnan(found.value) || before(value, found.value))) found = {value, layer, head};
    }
  }
  return found;
}

std::string where(const Extreme& extreme) {
  return std::isnan(extreme.value) ? std::string("–") : fmt::format("{}/{}", extreme.layer, extreme.head);
}

Table summary(const AnalysisResult& result) {
  Table table;
  table.columns = {{"measure", "", false}, {"mean", ""},         {"lowest head", ""},
                   {"layer /head", ""},    {"highest head", ""}, {"layer /head", ""}};
  for (std::size_t m = 0; m < result.info().measures.size(); ++m) {
    const MeasureInfo& measure = result.info().measures[m];
    const Extreme low = extreme_of(result, m, std::less<>());
    const Extreme high = extreme_of(result, m, std::greater<>());
    table.rows.push_back({measure.title, shown(result.mean(m), measure.unit), shown(low.value, measure.unit),
                          where(low), shown(high.value, measure.unit), where(high)});
  }
  return table;
}

Json json_of_measure(const AnalysisResult& result, std::size_t m) {
  const MeasureInfo& measure = result.info().measures[m];
  Json json = {{"key", measure.key},
               {"title", measure.title},
               {"unit", measure.unit == MeasureUnit::kShare    ? "share"
                        : measure.unit == MeasureUnit::kTokens ? "tokens"
                                                               : "number"},
               {"mean", json_number(result.mean(m))},
               {"by_layer_and_head", Json::array()}};
  for (std::uint32_t layer = result.first_layer(); layer < result.first_layer() + result.layers(); ++layer) {
    Json heads = Json::array();
    for (std::uint32_t head = 0; head < result.heads(); ++head) heads.push_back(json_number(result.at(m, layer, head)));
    json["by_layer_and_head"].push_back(std::move(heads));
  }
  return json;
}

Json json_of_values(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) json.push_back(json_number(value));
  return json;
}

Json json_of_charts(const AnalysisResult& result) {
  Json charts = Json::array();
  std::size_t line = 0;
  for (const ChartInfo& info : result.info().charts) {
    Json chart = {{"key", info.key},         {"title", info.title}, {"x_label", info.x.label},
                  {"y_label", info.y.label}, {"x", info.grid},      {"lines", Json::array()}};
    for (const std::string& label : info.lines) {
      Json by_layer = Json::array();
      for (std::uint32_t layer = result.first_layer(); layer < result.first_layer() + result.layers(); ++layer) {
        by_layer.push_back(json_of_values(result.line_of_layer(line, layer)));
      }
      chart["lines"].push_back(
          {{"label", label}, {"y", json_of_values(result.line(line))}, {"y_by_layer", std::move(by_layer)}});
      ++line;
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

Json json_of(const AnalysisResult& result) {
  const AnalysisInfo& info = result.info();
  Json json = {{"name", info.name},           {"title", info.title},
               {"finding", result.finding()}, {"definition", info.definition},
               {"source", info.source},       {"first_layer", result.first_layer()},
               {"measures", Json::array()}};
  for (std::size_t m = 0; m < info.measures.size(); ++m) json["measures"].push_back(json_of_measure(result, m));
  json["charts"] = json_of_charts(result);
  return json;
}

Json manifest_json(const AnalyzeAnswer& answer) {
  const TraceManifest& m = answer.trace.manifest();
  Json sequences = Json::array();
  for (const TraceSequence& s : m.sequences) {
    sequences.push_back({{"id", s.id}, {"prompt", s.prompt}, {"tokens", s.tokens}});
  }
  return {{"version", kVersion},
          {"command_line", answer.arguments.command_line},
          {"trace",
           {{"path", answer.trace.path().string()},
            {"source", m.source},
            {"model", m.model_name},
            {"policy", m.policy},
            {"layers", m.layers.size()},
            {"sequences", std::move(sequences)}}}};
}

std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

// line,layer,x,y: overall rows have no layer.
std::string lines_csv(const AnalysisResult& result) {
  Table table;
  table.columns = {{"", "chart"}, {"", "line"}, {"", "layer"}, {"", "x"}, {"", "y"}};
  std::size_t line = 0;
  for (const ChartInfo& chart : result.info().charts) {
    for (const std::string& label : chart.lines) {
      const auto add = [&](const std::string& layer, const std::vector<double>& y) {
        for (std::size_t i = 0; i < y.size(); ++i) {
          table.rows.push_back({chart.key, label, layer, raw(chart.grid[i]), raw(y[i])});
        }
      };
      add("", result.line(line));
      for (std::uint32_t layer = result.first_layer(); layer < result.first_layer() + result.layers(); ++layer) {
        add(std::to_string(layer), result.line_of_layer(line, layer));
      }
      ++line;
    }
  }
  return format_csv(table);
}

std::string about(const AnalyzeAnswer& answer) {
  const TraceManifest& m = answer.trace.manifest();
  std::uint64_t prompt = 0;
  std::uint64_t decoded = 0;
  for (const TraceSequence& s : m.sequences) {
    prompt += std::min(s.prompt, s.tokens);
    decoded += s.tokens - std::min(s.prompt, s.tokens);
  }
  const AnalysisResult& first = answer.results.front();
  return fmt::format(
      "{}{}: {} sequence{} of {} prompt and {} decoded tokens in all; layers {} to {} of {}, {} query "
      "heads each.",
      answer.trace.path().filename().string(), m.model_name.empty() ? "" : fmt::format(" (model {})", m.model_name),
      m.sequences.size(), m.sequences.size() == 1 ? "" : "s", prompt, decoded, first.first_layer(),
      first.first_layer() + first.layers() - 1, m.layers.size(), first.heads());
}

void write_files(const AnalyzeAnswer& answer, const fs::path& folder) {
  for (const AnalysisResult& result : answer.results) {
    const std::string name(result.info().name);
    Json json = json_of(result);
    json["manifest"] = manifest_json(answer);
    write_text_file(folder / (name + ".json"), dump(json));
    write_text_file(folder / (name + ".csv"), analyze_csv({&result, 1}));
    if (!result.info().charts.empty()) write_text_file(folder / (name + "-lines.csv"), lines_csv(result));
    for (const Picture& picture : pictures_of(result)) write_text_file(folder / (picture.name + ".svg"), picture.svg);
  }
  write_text_file(folder / "index.html", html_page(about(answer), answer.results));
}

}  // namespace

std::string analyze_table(const AnalyzeAnswer& answer) {
  std::string text = format_paragraph(about(answer), 0);
  for (const AnalysisResult& result : answer.results) {
    const AnalysisInfo& info = result.info();
    text += fmt::format("\n{} ({})\n", info.title, info.name);
    text += format_paragraph(result.finding(), 2);
    text += "\n" + format_table(summary(result)) + "\n";
    text += format_paragraph(fmt::format("{} Source: {}.", info.definition, info.source), 2);
  }
  return text;
}

std::string analyze_json(const AnalyzeAnswer& answer) {
  Json json = {{"analyses", Json::array()}};
  for (const AnalysisResult& result : answer.results) json["analyses"].push_back(json_of(result));
  json["manifest"] = manifest_json(answer);
  return dump(json);
}

std::string analyze_csv(std::span<const AnalysisResult> results) {
  Table table;
  table.columns = {{"", "analysis"}, {"", "measure"}, {"", "layer"}, {"", "head"}, {"", "value"}};
  for (const AnalysisResult& result : results) {
    for (std::size_t m = 0; m < result.info().measures.size(); ++m) {
      for (std::uint32_t layer = result.first_layer(); layer < result.first_layer() + result.layers(); ++layer) {
        for (std::uint32_t head = 0; head < result.heads(); ++head) {
          table.rows.push_back({std::string(result.info().name), result.info().measures[m].key, std::to_string(layer),
                                std::to_string(head), raw(result.at(m, layer, head))});
        }
      }
    }
  }
  return format_csv(table);
}

void check_new_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(folder, ignored))) return;
  throw usage_error(fmt::format("-o {}: is there already, and nothing is overwritten", folder.string()))
      .note("choose another name, or remove it first");
}

void write_folder(const AnalyzeAnswer& answer, const fs::path& folder) {
  fs::path place = folder;
  if (!place.has_filename()) place = place.parent_path();   // "out/"
  std::string temporary = place.string() + ".part-XXXXXX";  // nothing of the user's has this name
  std::error_code reason;
  if (mkdtemp(temporary.data()) == nullptr) {
    throw Error(fmt::format("-o {}: cannot be made: {}", folder.string(), std::strerror(errno)));
  }
  fs::permissions(temporary, fs::perms(0755), reason);
  try {
    write_files(answer, temporary);
    fs::rename(temporary, place);
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(temporary, reason);
    throw Error(fmt::format("-o {}: cannot be made: {}", folder.string(), error.code().message()));
  } catch (...) {
    fs::remove_all(temporary, reason);
    throw;
  }
}

}  // namespace kvroof
