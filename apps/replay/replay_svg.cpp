#include "apps/replay/replay_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "analysis/plot.hpp"
#include "apps/prediction/policy_labels.hpp"
#include "sim/replay/bounds.hpp"

namespace kvroof {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

struct Mark {
  double x = 0, y = 0;
  double low = 0, high = 0;  // of x
  std::string text;
};

// A line through marks, by what it spends.
PlotLine line_of(const std::string& label, std::vector<Mark> marks, bool faint, bool intervals) {
  std::ranges::stable_sort(marks, {}, &Mark::x);
  PlotLine line{label, {}, {}, false, faint};
  for (Mark& mark : marks) {
    line.x.push_back(mark.x);
    line.y.push_back(mark.y);
    line.marks.push_back(std::move(mark.text));
    if (!intervals) continue;
    line.x_low.push_back(mark.low);
    line.x_high.push_back(mark.high);
  }
  return line;
}

bool is_bound(const PolicySpec& spec) { return std::ranges::count(kBoundNames, spec.name) > 0; }

// What others are held against lies behind them.
class Lines {
 public:
  void add(const PolicySpec& spec, Mark mark) {
    of(name_without_budget(spec), is_bound(spec)).push_back(std::move(mark));
  }
  void add_bound(const std::string& name, Mark mark) { of(name, true).push_back(std::move(mark)); }
  [[nodiscard]] std::vector<PlotLine> lines(bool intervals) && {
    std::vector<PlotLine> lines;
    for (Line& line : lines_) lines.push_back(line_of(line.label, std::move(line.marks), line.faint, intervals));
    return lines;
  }

 private:
  struct Line {
    std::string label;
    std::vector<Mark> marks;
    bool faint;
  };
  std::vector<Mark>& of(const std::string& label, bool faint) {
    const auto known = std::ranges::find(lines_, label, &Line::label);
    if (known != lines_.end()) return known->marks;
    return lines_.emplace_back(label, std::vector<Mark>(), faint).marks;
  }
  std::vector<Line> lines_;
};

// One point of each policy and budget, on the first model. A trace without decoded tokens has no quality.
std::vector<const ReplayPoint*> one_of_each(const ReplayAnswer& answer) {
  std::vector<const ReplayPoint*> points;
  for (const ReplayPoint& point : answer.points) {
    if (!point.quality() || point.batch == 0 || point.model != answer.points.front().model) continue;
    if (std::ranges::find(points, point.result, &ReplayPoint::result) == points.end()) points.push_back(&point);
  }
  return points;
}

double mib_read(const ReplayAnswer& answer, const ReplayPoint& point) {
  const auto sequences = static_cast<double>(point.batch * answer.request.beams);
  return static_cast<double>(point.accounting.kv_read) / sequences / kMiB;
}

LineChart quality_chart(const ReplayAnswer& answer) {
  const std::string& model = answer.points.front().model;
  LineChart chart{"What is left of the attention",
                  {fmt::format("KV that a step reads{} (MiB a sequence)", model.empty() ? "" : ", as " + model)},
                  {"recall (%)", false, true},
                  {}};
  Lines lines;
  std::vector<std::string> bounded;  // budgets whose bounds are drawn
  const std::vector<const ReplayPoint*> points = one_of_each(answer);
  // A bound that was asked for as a policy has its own mark.
  const auto asked_for = [&points](const std::string& name, const std::string& budget) {
    return std::ranges::any_of(points, [&](const ReplayPoint* point) {
      return point->result->spec.name == name && point->result->spec.budget.text == budget;
    });
  };
  for (const ReplayPoint* point : points) {
    const PolicySpec& spec = point->result->spec;
    const double x = mib_read(answer, *point), recall = point->quality()->recall_mean;
    lines.add(spec, {x, recall, 0, 0, fmt::format("{}: recall {:.3f}, {:.3g} MiB", spec.text(), recall, x)});
    if (!point->bounds || std::ranges::find(bounded, point->bounds->budget.text) != bounded.end()) continue;
    bounded.push_back(point->bounds->budget.text);
    for (const auto& [name, value] : {std::pair("oracle", point->bounds->oracle), {"random", point->bounds->random}}) {
      if (asked_for(name, bounded.back())) continue;
      lines.add_bound(name, {x, value, 0, 0, fmt::format("{}:budget={}: recall {:.3f}", name, bounded.back(), value)});
    }
  }
  chart.lines = std::move(lines).lines(false);
  return chart;
}

LineChart error_chart(const ReplayAnswer& answer) {
  LineChart chart{"What it changes in the output of attention", quality_chart(answer).x, {"|o - o'| / |o|"}, {}};
  Lines lines;
  for (const ReplayPoint* point : one_of_each(answer)) {
    const PolicySpec& spec = point->result->spec;
    if (!point->quality()->output_error) continue;
    const double x = mib_read(answer, *point), error = *point->quality()->output_error;
    lines.add(spec, {x, error, 0, 0, fmt::format("{}: output error {:.3f}, {:.3g} MiB", spec.text(), error, x)});
  }
  chart.lines = std::move(lines).lines(false);
  return chart;
}

// The points of one model and device with one choice of batch, which follow each other by policy.
struct Deployed {
  const ReplayPoint* first;
  std::size_t choice;  // of the request's batches
};

std::vector<Deployed> deployments(const ReplayAnswer& answer) {
  std::vector<Deployed> found;
  const std::size_t batches = answer.request.batches.size();
  for (std::size_t i = 0; i < answer.points.size(); ++i) {
    const ReplayPoint& point = answer.points[i];
    if (point.device.empty()) continue;
    const std::size_t choice = i % batches;
    const auto same = [&](const Deployed& d) {
      return d.choice == choice && d.first->model == point.model && d.first->device == point.device;
    };
    if (std::ranges::none_of(found, same)) found.push_back({&point, choice});
  }
  return found;
}

std::string title_of(const ReplayAnswer& answer, const Deployed& deployed) {
  const BatchChoice& batch = answer.request.batches[deployed.choice];
  const std::string size = batch ? fmt::format("batch {}", *batch) : "the largest batch that fits";
  const std::string& model = deployed.first->model;
  return fmt::format("What that buys on {}: {}{}", deployed.first->device, model.empty() ? "" : model + ", ", size);
}

LineChart speed_chart(const ReplayAnswer& answer, const Deployed& deployed) {
  LineChart chart{title_of(answer, deployed), {"tokens/s, with the 80 % interval"}, {"recall (%)", false, true}, {}};
  Lines lines;
  for (std::size_t i = deployed.choice; i < answer.points.size(); i += answer.request.batches.size()) {
    const ReplayPoint& p = answer.points[i];
    if (p.model != deployed.first->model || p.device != deployed.first->device || !p.prediction ||
        !p.quality()) {
      continue;
    }
    const Estimate& rate = p.prediction->tokens_per_s;
    const double recall = p.quality()->recall_mean;
    lines.add(p.result->spec,
              {rate.value, recall, rate.low80, rate.high80,
               fmt::format("{}, batch {}: recall {:.3f}, {:.0f} tokens/s ({:.0f} to {:.0f})", p.result->spec.text(),
                           p.batch, recall, rate.value, rate.low80, rate.high80)});
  }
  chart.lines = std::move(lines).lines(true);
  return chart;
}

}  // namespace

std::string replay_svg(const ReplayAnswer& answer) {
  std::vector<LineChart> charts = {quality_chart(answer)};
  if (answer.request.measure.output_error) charts.push_back(error_chart(answer));
  for (const Deployed& deployed : deployments(answer)) charts.push_back(speed_chart(answer, deployed));
  const TraceManifest& m = answer.manifest;
  return line_charts_svg(fmt::format("{}: {} under policies", answer.request.trace.filename().string(), m.model_name),
                         charts);
}

}  // namespace kvroof
