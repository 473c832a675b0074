#include "apps/compare/compare_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/plot.hpp"
#include "apps/cli/table.hpp"
#include "apps/cli/wide_rows.hpp"
#include "apps/compare/scatter.hpp"
#include "apps/prediction/cached_prompt.hpp"
#include "apps/prediction/device_prices.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/speculation.hpp"
#include "kvroof_version.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

std::string or_dash(double x) { return x > 0 ? number_text(x) : "–"; }

// Whose prices those are.
std::vector<std::string> price_notes(const std::vector<Contender>& ranked) {
  std::vector<const Device*> devices;
  for (const Contender& c : ranked) devices.push_back(c.device);
  const std::string text = prices_text(devices);
  if (text.empty()) return {};
  return {fmt::format("$: of a million generated tokens, {}; a device without a price has no figure; tokens_per_usd is "
                      "at the highest",
                      text)};
}

// Why there is no batch.
std::string none_text(const Contender& c) {
  const std::string& limit = c.served.limited_by;
  return limit == "tpot" || limit == "ttft" ? fmt::format("misses {}", limit) : "does not fit";
}

// Of what misses a goal under load it says by how much.
std::string first_token_text(const Ranking& r, const Contender& c) {
  const auto& first = c.served.first_token;
  return first && (c.batch > 0 || r.goals.under_load) ? with_interval(*first, 1e3) : "–";
}

// What takes most of a step, or under load of a token's time; or why there is none.
std::string limit_text(const Contender& c) {
  if (c.batch == 0) return none_text(c);
  return std::string(most_of_step(c.prediction, c.token.value));
}

// " within 30 ms a token and 2000 ms for a prompt under load", or nothing.
std::string goals_text(const Goals& goals) {
  std::string text;
  if (goals.tpot_ms) text += fmt::format(" within {:.6g} ms a token", *goals.tpot_ms);
  if (goals.ttft_ms) {
    text += fmt::format("{}{:.6g} ms for a prompt", text.empty() ? " within " : " and ", *goals.ttft_ms);
  }
  return goals.under_load ? text + " under load" : text;
}

std::string batch_text(const Goals& goals) {
  return goals.batch ? fmt::format("with a batch of {}", *goals.batch) : "at the largest batch that fits";
}

std::vector<const Workload*> workloads_of(const std::vector<Contender>& ranked) {
  std::vector<const Workload*> workloads;
  for (const Contender& c : ranked) workloads.push_back(c.workload);
  return workloads;
}

std::string lengths_text(const Ranking& r) {
  return lengths_text(r.request, most_cached(workloads_of(r.ranked)));
}

// Which is first, and by how much.
std::string first_text(const Ranking& r) {
  const auto& [request, by, goals, ranked, front] = r;
  const Contender& best = ranked.front();
  std::string text = fmt::format("{}, {}, each device {}{}: ", request.model.name, lengths_text(r),
                                 batch_text(goals), goals_text(goals));
  if (best.batch == 0) return text + (goals.batch ? "none of them." : "none of them holds even one sequence.");
  const auto named = [&](const Contender& c) {
    return fmt::format("{}{} under {}", c.name(r.several(), c.device->title), r.several() ? "," : "",
                       request.title(c.workload->policy()));
  };
  text += fmt::format("{} is first by {}", named(best), by.of(best) > 0 ? by.name : "tokens_per_s");
  if (by.of(best) <= 0) return text + fmt::format("; of those that serve any, none has {}.", by.needs);
  auto second = std::find_if(ranked.begin(), ranked.end(),
                             [&](const Contender& c) { return c.device != best.device && by.of(c) > 0; });
  if (second == ranked.end()) {
    // On one device errors are shared: how far the intervals reach says nothing about which policy is faster there.
    second = std::find_if(ranked.begin() + 1, ranked.end(), [&](const Contender& c) { return by.of(c) > 0; });
    if (second == ranked.end()) return text + ".";
    return text + fmt::format(", {} times {} there.", number_text(by.of(best) / by.of(*second)),
                              r.several() ? r.title(*second) : request.title(second->workload->policy()));
  }
  const auto share = [](const Contender& c, double Estimate::* end) {
    return c.rate.*end / c.tokens_per_s();
  };
  const bool overlap = by.of(best) * share(best, &Estimate::low80) < by.of(*second) * share(*second, &Estimate::high80);
  return text + fmt::format(", {} times {}{}.", number_text(by.of(best) / by.of(*second)), named(*second),
                            overlap ? "; their 80 % intervals overlap" : "");
}

// "; with them full is first, 1.09 times this": what is best of these batches where prompts are counted in.
std::string first_under_load(const Ranking& r) {
  const auto loaded = [&](const Contender& c) {
    return c.batch > 0 ? r.by.of(c) * c.loaded_rate / c.tokens_per_s() : 0;
  };
  const Contender& best = r.ranked.front();
  const auto first = std::ranges::max_element(r.ranked, {}, loaded);
  if (&*first == &best || !(loaded(best) > 0)) return {};
  return fmt::format("; with them {} is first, {} times this", r.title(*first),
                     number_text(loaded(*first) / loaded(best)));
}

// Where goals are of steps alone: that prompts, one of each sequence, take longer than the steps of all their answers.
std::string prompts_text(const Ranking& r) {
  const Contender& best = r.ranked.front();
  if (r.goals.under_load || best.batch == 0) return {};
  const double prompts = best.prompts.value, steps = best.token.value * r.request.output;
  if (prompts <= steps) return {};
  return fmt::format(" All of this is of decode steps: {} {} times as long as the steps of their answers, which "
                     "--under-load counts in{}.", best.batch == 1 ? "the prompt takes" : "the prompts take",
                     number_text(prompts / steps), first_under_load(r));
}

std::string answer_text(const Ranking& r) {
  const Contender& best = r.ranked.front();
  const auto with = std::ranges::find_if(r.ranked, [&](const Contender& c) {
    return c.served.drafts && c.device == best.device && c.workload == best.workload &&
           layout_options(*c.deployment) == layout_options(*best.deployment) &&
           c.deployment->weights.name == best.deployment->weights.name;
  });
  const std::string beside = prompts_text(r) + middle_text(*best.device, best.factors);
  if (with == r.ranked.end()) return first_text(r) + beside;
  const std::string there = &*with == &best ? "There" : fmt::format("With a batch of {} there,", with->batch);
  return fmt::format("{} {} {}.{}", first_text(r), there,
                     gain_text(*with->served.drafts, !best.workload->policy().is_full(), r.goals.under_load), beside);
}

std::vector<std::string> compare_notes(const Ranking& r) {
  const std::vector<Contender>& ranked = r.ranked;
  std::vector<const Device*> devices;
  for (const Contender& c : ranked) devices.push_back(c.device);
  std::vector<std::string> notes = workload_notes(r.request, devices);
  for (std::string& note : cached_prompt_notes(r.request, workloads_of(ranked))) notes.push_back(std::move(note));
  for (std::string& note : mean_request_notes(r.request)) notes.push_back(std::move(note));
  for (std::string& note : goal_notes(r.goals)) notes.push_back(std::move(note));
  std::vector<NamedFactors> factors;
  for (const Contender& c : ranked) {
    if (c.batch > 0) factors.push_back({r.title(c), c.factors, c.token.unmeasured > 0});
  }
  for (std::string& note : interval_notes(factors)) notes.push_back(std::move(note));
  if (r.goals.under_load) {
    notes.emplace_back(
        "under load: as many clients as the batch, each of which sends the next request as soon as one is answered, "
        "with lengths around those given");
  } else {
    notes.push_back(fmt::format(
        "tokens/s, $ and J are of decode steps alone: the time of prompts, {} of {} tokens here, is not in them; "
        "--under-load includes it",
        r.request.prompt, r.request.prompt + r.request.output));
  }
  for (std::string& note : price_notes(ranked)) notes.push_back(std::move(note));
  notes.emplace_back("tokens/J: at the power limit of the board; what it draws is less");
  return notes;
}

Table table_of(const Ranking& r) {
  Table table;
  table.columns = {{"device", "device", false},
                   {"policy", "policy", false},
                   {"largest batch", "largest_batch"},
                   {"limited by", "limited_by", false},
                   {"ms a token", "tpot_ms"},
                   {"first token ms", "first_token_ms"},
                   {"tokens/s", "tokens_per_s"},
                   {"tokens/s a sequence", "tokens_per_s_a_sequence"},
                   {"$ a million tokens", "usd_per_million_tokens"},
                   {"tokens/J", "tokens_per_joule"},
                   {"on the front", "pareto", false},
                   {"most of a step", "step_limited_by", false}};
  const bool drafts = drafts_anything(r.request.deployments);
  if (drafts) table.columns.push_back({"decode times as fast by drafts", "times_as_fast"});
  for (const Contender& c : r.ranked) {
    const std::string policy = r.request.title(c.workload->policy());
    const bool fits = c.batch > 0;
    table.rows.push_back({c.name(r.several()), policy, std::to_string(c.served.largest), c.served.limited_by,
                          fits ? with_interval(c.token, 1e3) : "–",
                          first_token_text(r, c), or_dash(c.tokens_per_s()), or_dash(c.tokens_per_s_a_sequence()),
                          usd_text(c.price()), or_dash(c.tokens_per_joule()),
                          c.on_front ? "yes" : "", limit_text(c)});
    if (drafts) table.rows.back().push_back(c.served.drafts ? fmt::format("{:.2f}", c.served.drafts->times) : "–");
  }
  return table;
}

std::string_view kv_type_of(const Ranking& r, const Contender& c) {
  return name_of(r.request.with_cache_of(c.workload->policy(), *c.deployment).types.kv);
}

// Null for a figure that there is not: no batch, no price, no power.
Json positive(double x) { return if_any(x > 0, x); }

Json point_json(const Ranking& r, const Contender& c) {
  const bool fits = c.batch > 0;
  Json point = {{"model", r.request.model.name},
                {"device", c.device->name},
                {"engine", r.request.engine_text(*c.device)},
                {"policy", c.workload->policy().text()},
                {"prompt", r.request.prompt},
                {"output", r.request.output},
                {"cached_tokens", c.workload->mean().cached},
                {"weight_type", c.deployment->weights.name},
                {"kv_type", kv_type_of(r, c)}};
  add_layout(point, *c.deployment);
  point["batch"] = c.batch;
  point["largest_batch"] = c.served.largest;
  point["limited_by"] = c.served.limited_by;
  point["step_limited_by"] = limit_text(c);
  point["tpot_ms"] = if_any(fits, c.token.value * 1e3);
  point["ttft_ms"] = interval_json(c.served.first_token, 1e3);
  point["tokens_per_s"] = positive(c.tokens_per_s());
  point["tokens_per_s_a_sequence"] = positive(c.tokens_per_s_a_sequence());
  point["tokens_per_s_a_device"] = positive(c.tokens_per_s_a_device());
  point["tokens_per_usd"] = positive(c.tokens_per_usd());
  point["usd_per_million_tokens"] = price_json(c.price());
  point["tokens_per_joule"] = positive(c.tokens_per_joule());
  point["pareto"] = c.on_front;
  point["tpot_ms_interval"] = if_any(fits, interval_json(c.token, 1e3));
  point["tokens_per_s_interval"] = if_any(fits, interval_json(c.rate, 1));
  point["largest_batch_interval"] = if_any(fits, interval_json(c.served.interval, 1));
  point["interval_from"] = if_any(fits, c.factors.text());
  if (drafts_anything(r.request.deployments)) point["speculation"] = gain_json(c.served.drafts);
  point["batches"] = Json::array();
  for (const auto& [one, all] : c.batches) {
    point["batches"].push_back({{"tokens_per_s_a_sequence", one}, {"tokens_per_s_a_device", all}});
  }
  return point;
}

constexpr const char* kAcross = "tokens/s a sequence";
constexpr const char* kUpwards = "tokens/s a device";

}  // namespace

std::string compare_table(const Ranking& r) {
  std::string text = format_paragraph(answer_text(r), 0) + "\n";
  text += format_table(table_of(r)) + "\n";
  std::vector<ScatterSeries> series;
  for (const Contender& c : r.ranked) series.push_back({r.title(c), c.batches});
  const std::string from = r.goals.batch ? fmt::format("a batch of {}", *r.goals.batch) : "the largest batch";
  text += scatter_text(series, fmt::format("{}, from {} (left) to 1 (right)", kAcross, from), kUpwards) + "\n";
  for (const std::string& note : compare_notes(r)) text += format_paragraph(note, 0);
  return text;
}

std::string compare_svg(const Ranking& r) {
  LineChart chart{fmt::format("{}, {}{}", r.request.model.name, lengths_text(r), goals_text(r.goals)),
                  {kAcross, true, false, LogTicks::kDecimal},
                  {kUpwards, true, false, LogTicks::kDecimal},
                  {}};
  for (const Contender& c : r.ranked) {
    if (c.batches.empty()) continue;  // does not fit: the table says so
    PlotLine line{r.title(c), {}, {}, false, !r.stands_out(c)};
    for (const auto& [one, all] : c.batches) {
      line.x.push_back(one);
      line.y.push_back(all);
    }
    chart.lines.push_back(std::move(line));
  }
  PlotLine front{"Pareto front", {}, {}, true, false};
  for (const auto& [one, all] : r.front) {
    front.x.push_back(one);
    front.y.push_back(all);
  }
  chart.lines.push_back(std::move(front));
  return line_chart_svg(chart);
}

std::string compare_csv(const Ranking& r) {
  WideRows rows;
  for (const Contender& c : r.ranked) {
    Json point = point_json(r, c);
    unnest(point, "speculation");
    rows.add_cells(point);
    rows.end_row();
  }
  return rows.csv();
}

std::string compare_json(const Ranking& r) {
  Json json;
  json["answer"] = answer_text(r);
  json["model"] = r.request.model.name;
  json["prompt"] = r.request.prompt;
  json["output"] = r.request.output;
  json["cached_share"] = r.request.cached_share;
  json["by"] = r.by.name;
  json["goals"] = {{"tpot_ms", r.goals.tpot_ms ? Json(*r.goals.tpot_ms) : Json(nullptr)},
                   {"ttft_ms", r.goals.ttft_ms ? Json(*r.goals.ttft_ms) : Json(nullptr)},
                   {"batch", r.goals.batch ? Json(*r.goals.batch) : Json(nullptr)},
                   {"under_load", r.goals.under_load}};
  json["points"] = Json::array();
  for (const Contender& c : r.ranked) json["points"].push_back(folded(point_json(r, c)));
  json["front"] = Json::array();
  for (const auto& [one, all] : r.front) {
    json["front"].push_back({{"tokens_per_s_a_sequence", one}, {"tokens_per_s_a_device", all}});
  }
  json["notes"] = compare_notes(r);
  json["version"] = kVersion;
  return json.dump(2) + "\n";
}

}  // namespace kvroof
