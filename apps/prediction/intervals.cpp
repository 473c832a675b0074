#include "apps/prediction/intervals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/served_rows.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "sim/core/files.hpp"

namespace kvroof {

namespace fs = std::filesystem;

std::vector<PublishedRow> read_published_rows(const fs::path& path) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
  return published_rows(read_input(path, kMostBytes).or_throw(path.string(), ExitCode::kUsage))
      .or_throw(path.string(), ExitCode::kUsage);
}

fs::path shipped_rows() { return data_folder() / "validation" / "published.csv"; }

std::vector<ScoredRow> score_rows(const std::vector<PublishedRow>& rows) {
  const Scoreboard scoreboard(data_folder() / "catalog");
  std::vector<ScoredRow> scored;
  scored.reserve(rows.size());
  for (const PublishedRow& row : rows) scored.push_back(scoreboard.score(row));
  return scored;
}

const IntervalTable& shipped_intervals() {
  static const IntervalTable table = [] {
    const std::vector<PublishedRow> rows = read_published_rows(shipped_rows());
    return interval_table(score_rows(rows));
  }();
  return table;
}

const IntervalTable& served_intervals() {
  static const IntervalTable table = [] {
    constexpr std::size_t kMostBytes = std::size_t{16} << 20;
    const std::string path = (data_folder() / "validation" / "serving.csv").string();
    return IntervalTable(served_residuals(read_text_file(path, kMostBytes).or_throw(path), data_folder() / "catalog")
                             .or_throw(path),
                         kServedRuns);
  }();
  return table;
}

namespace {

RowKind kind_on(const Device& device, const CostModel& cost, const std::string& metric, const Reach& reach) {
  RowKind kind{std::string(name_of(device.memory_type)), cost.engine().name, metric, device.name, reach};
  kind.family = architecture_family(device.architecture);
  set_weights(kind, cost.shape(), cost.deployment());
  return kind;
}

}  // namespace

ServedErrors served_errors(const Device& device, const CostModel& cost, const Reach& reach, bool cold) {
  ServedErrors errors;
  if (device.kind == DeviceKind::kCpu) return errors;
  RowKind kind = kind_on(device, cost, "", reach);
  // Nothing is left out, and nothing is wider for being none of the rows: no constant was chosen with these in view.
  const auto of = [&](const auto& metric, ServedState state) {
    const auto figure = [&](const char* name) {
      kind.metric = metric(state, name);
      return served_intervals().factors(kind, [](const Residual& /*row*/) { return false; });
    };
    return ServedErrors::Of{figure("mean"), figure("p90"), figure("p99")};
  };
  const ServedState state = served_state(cold, kind.experts);
  errors.first_token = of(served_first_token_metric, ServedState::kRunning);
  errors.answer = of(served_answer_metric, ServedState::kRunning);
  if (cold) errors.cold_first_token = of(served_first_token_metric, state);
  if (state == ServedState::kColdExperts) errors.cold_answer = of(served_answer_metric, state);
  return errors;
}

IntervalGroup interval_group(const Device& device, const CostModel& cost, const std::string& metric) {
  return shipped_intervals().group(kind_on(device, cost, metric, {}));
}

namespace {

// How the widths of the constants are scaled, and what that is limited by.
std::string scaled_text(const IntervalFactors& f) {
  std::string text = fmt::format("× {:.2f} at 80 %, × {:.2f} at 95 %", f.factor80, f.factor95);
  if (f.never_narrower) text += ", no narrower than unscaled";
  if (f.error80 < IntervalFactors::kNoLimit) {
    text += fmt::format(", no wider than those rows are off (factors of {:.2f} and {:.2f}) or unscaled",
                        std::exp(f.error80), std::exp(f.error95));
  }
  return text;
}

std::string widened_text(const std::string& beyond) {
  if (beyond.empty()) return {};
  const bool several = beyond.find("; ") != std::string::npos;
  return fmt::format("; then widened{}: {}", several ? ", reasons in squares" : "", beyond);
}

// What widens all predictions of a group: the longest beginning, in whole reasons, of what lies beyond their rows.
std::string common_reasons(const std::vector<NamedFactors>& group) {
  std::string common = group.front().factors.beyond;
  for (const NamedFactors& p : group) {
    const std::string ended = p.factors.beyond + ";";
    while (!common.empty() && !ended.starts_with(common + ";")) {
      const std::size_t end = common.rfind("; ");
      common.erase(end == std::string::npos ? 0 : end);
    }
  }
  return common;
}

std::string group_note(const std::vector<NamedFactors>& group) {
  const std::string common = common_reasons(group);
  const auto widest = std::max_element(group.begin(), group.end(), [](const auto& a, const auto& b) {
    return a.factors.wider < b.factors.wider;
  });
  std::string text = fmt::format("{}: {}{}", group.front().factors.from, scaled_text(group.front().factors),
                                 widened_text(common));
  const auto more = std::count_if(group.begin(), group.end(),
                                  [&](const NamedFactors& p) { return p.factors.beyond.size() > common.size(); });
  if (more == 0) return text;
  const std::string& beyond = widest->factors.beyond;
  return text + fmt::format("{} {} of {} more, most of all {}: {}", common.empty() ? "; then widened:" : ";", more,
                            group.size(), widest->name, beyond.substr(common.empty() ? 0 : common.size() + 2));
}

constexpr const char* kIntervalsOfSteps =
    "intervals of a step: the uncertainty of its constants, scaled so that it holds for like measured rows";

}  // namespace

std::string middle_text(const Device& device, const IntervalFactors& factors) {
  if (factors.middle == 1) return {};
  return fmt::format(" Measured rows like {} took {:.2f} times as long as predicted.", device.name, factors.middle);
}

const char* policy_text(bool policy) {
  return policy ? "; kernels of policies, which no row has, keep their own uncertainty beside that" : "";
}

std::string interval_note(const IntervalFactors& f, bool policy) {
  return fmt::format("{} ({}; `kvroof validate` scores them): {}{}{}", kIntervalsOfSteps, f.from, scaled_text(f),
                     widened_text(f.beyond), policy_text(policy));
}

std::vector<std::string> interval_notes(const std::vector<NamedFactors>& predictions) {
  std::vector<std::vector<NamedFactors>> groups;
  std::set<std::string> all;
  for (const NamedFactors& p : predictions) {
    all.insert(p.factors.text());
    const auto same = [&](const auto& group) { return group.front().factors.from == p.factors.from; };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    (found == groups.end() ? groups.emplace_back() : *found).push_back(p);
  }
  if (groups.empty()) return {};
  const bool policy = std::ranges::any_of(predictions, &NamedFactors::policy);
  if (all.size() == 1) return {interval_note(predictions.front().factors, policy)};
  std::vector<std::string> notes = {
      fmt::format("{} (`kvroof validate` scores them{}):", kIntervalsOfSteps, policy_text(policy))};
  for (const auto& group : groups) notes.push_back(group_note(group));
  return notes;
}

}  // namespace kvroof
