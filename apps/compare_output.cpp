#include "apps/compare_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/plot.hpp"
#include "apps/estimate_text.hpp"
#include "apps/scatter.hpp"
#include "kvroof_version.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

std::string or_dash(double x) { return x > 0 ? short_number(x) : "–"; }

std::string usd_text(const Contender& c) {
  const auto price = c.price();
  return price ? fmt::format("{} to {}", short_number(price->low_usd), short_number(price->high_usd)) : "–";
}

// Why there is no batch.
std::string none_text(const Contender& c) {
  const std::string& limit = c.served.limited_by;
  return limit == "tpot" || limit == "ttft" ? fmt::format("misses {}", limit) : "does not fit";
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

std::string answer_text(const Ranking& r) {
  const auto& [request, by, goals, ranked, front] = r;
  const Contender& best = ranked.front();
  std::string text = fmt::format("{}, {} + {} tokens a sequence, each device {}{}: ", request.model.name,
                                 request.prompt, request.output, batch_text(goals), goals_text(goals));
  if (best.batch == 0) return text + (goals.batch ? "none of them." : "none of them holds even one sequence.");
  text +=
      fmt::format("{} under {} is first by {}", best.device->title, request.title(best.workload->policy()), by.name);
  const auto second = std::find_if(ranked.begin(), ranked.end(),
                                   [&](const Contender& c) { return c.device != best.device && by.of(c) > 0; });
  if (second == ranked.end()) return text + ".";
  const auto share = [](const Contender& c, double Estimate::* end) {
    return c.prediction.tokens_per_s.*end / c.tokens_per_s();
  };
  const bool overlap = by.of(best) * share(best, &Estimate::low80) < by.of(*second) * share(*second, &Estimate::high80);
  return text + fmt::format(", {} times {} under {}{}.", short_number(by.of(best) / by.of(*second)),
                            second->device->title, request.title(second->workload->policy()),
                            overlap ? "; their 80 % intervals overlap" : "");
}

std::vector<std::string> compare_notes(const Ranking& r) {
  const std::vector<Contender>& ranked = r.ranked;
  std::vector<std::string> notes = workload_notes(r.request);
  std::set<std::string> intervals;
  for (const Contender& c : ranked) {
    if (c.batch > 0 && intervals.insert(c.factors.from).second) notes.push_back(interval_note(c.factors));
  }
  std::string dates;
  for (const Contender& c : ranked) {
    if (c.device->price && c.device->price->date > dates) dates = c.device->price->date;
  }
  if (r.goals.under_load) {
    notes.emplace_back(
        "under load: the batch as clients that ask again once answered, with lengths around those given");
  } else {
    notes.push_back(fmt::format(
        "tokens/s, $ and J are of decode steps alone: the time of prompts, {} of {} tokens here, is not in them; "
        "--under-load has it in all",
        r.request.prompt, r.request.prompt + r.request.output));
  }
  if (!dates.empty()) {
    notes.push_back(fmt::format("$: of a million generated tokens, at the lowest to the highest listed price of the "
                                "devices, the latest of {}; no price, no figure",
                                dates));
  }
  notes.emplace_back("tokens/J: at the power that the board may draw; what it does draw is less");
  return notes;
}

constexpr const char* kAcross = "tokens/s a sequence";
constexpr const char* kUpwards = "tokens/s a device";

}  // namespace

Table compare_rows(const Ranking& r, bool several) {
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
  for (const Contender& c : r.ranked) {
    const std::string policy = r.request.title(c.workload->policy());
    const bool fits = c.batch > 0;
    const std::string limit = fits ? std::string(name_of(c.prediction.limited_by)) : none_text(c);
    const auto raw = [](double x) { return x > 0 ? fmt::format("{}", x) : std::string(); };
    const std::string largest = std::to_string(c.served.largest);
    const double usd = c.price() ? c.price()->high_usd : 0;
    table.rows.push_back({c.name(several), policy, largest, c.served.limited_by,
                          fits ? with_interval(c.prediction.step, 1e3) : "–",
                          fits ? with_interval(c.served.first_token, 1e3) : "–", or_dash(c.tokens_per_s()),
                          or_dash(c.tokens_per_s_a_sequence()), usd_text(c), or_dash(c.tokens_per_joule()),
                          c.on_front ? "yes" : "", limit});
    table.raw_rows.push_back({c.name(several), policy, largest, c.served.limited_by,
                              fits ? raw(c.prediction.step.value * 1e3) : "",
                              fits ? raw(c.served.first_token.value * 1e3) : "", raw(c.tokens_per_s()),
                              raw(c.tokens_per_s_a_sequence()), raw(usd), raw(c.tokens_per_joule()),
                              c.on_front ? "yes" : "no", limit});
  }
  return table;
}

std::string compare_table(const Ranking& r) {
  std::string text = format_paragraph(answer_text(r), 0) + "\n";
  text += format_table(compare_rows(r, r.several())) + "\n";
  std::vector<ScatterSeries> series;
  for (const Contender& c : r.ranked) {
    const char mark = static_cast<char>('A' + series.size() % 26);
    series.push_back({r.title(c), mark, c.batches});
  }
  const std::string from = r.goals.batch ? fmt::format("a batch of {}", *r.goals.batch) : "the largest batch";
  text += scatter_text(series, fmt::format("{}, from {} (left) to 1 (right)", kAcross, from), kUpwards) + "\n";
  for (const std::string& note : compare_notes(r)) text += format_paragraph(note, 0);
  return text;
}

std::string compare_svg(const Ranking& r) {
  LineChart chart{fmt::format("{}, {} + {} tokens{}", r.request.model.name, r.request.prompt, r.request.output,
                              goals_text(r.goals)),
                  {kAcross, true, false},
                  {kUpwards, true, false},
                  {}};
  for (const Contender& c : r.ranked) {
    PlotLine line{r.title(c), {}, {}, false};
    for (const auto& [one, all] : c.batches) {
      line.x.push_back(one);
      line.y.push_back(all);
    }
    chart.lines.push_back(std::move(line));
  }
  PlotLine front{"Pareto front", {}, {}, true};
  for (const auto& [one, all] : r.front) {
    front.x.push_back(one);
    front.y.push_back(all);
  }
  chart.lines.push_back(std::move(front));
  return line_chart_svg(chart);
}

std::string compare_json(const Ranking& r) {
  Json json;
  json["answer"] = answer_text(r);
  json["by"] = r.by.name;
  json["goals"] = {{"tpot_ms", r.goals.tpot_ms ? Json(*r.goals.tpot_ms) : Json(nullptr)},
                   {"ttft_ms", r.goals.ttft_ms ? Json(*r.goals.ttft_ms) : Json(nullptr)},
                   {"batch", r.goals.batch ? Json(*r.goals.batch) : Json(nullptr)},
                   {"under_load", r.goals.under_load}};
  json["points"] = Json::parse(format_json_rows(compare_rows(r, false)));
  for (std::size_t i = 0; i < r.ranked.size(); ++i) {
    Json& point = json["points"][i];
    const Contender& c = r.ranked[i];
    const bool fits = c.batch > 0;
    point["policy"] = c.workload->policy().text();
    point["kv_type"] = name_of(r.request.with_cache_of(c.workload->policy(), *c.deployment).types.kv);
    point["weight_type"] = c.deployment->weights.name;
    point["batch"] = c.batch;
    point["tokens_per_usd"] = c.price() ? Json(c.tokens_per_usd()) : Json(nullptr);
    point["usd_per_million_tokens"] =
        c.price() ? Json({{"low", c.price()->low_usd}, {"high", c.price()->high_usd}}) : Json(nullptr);
    point["ttft_ms"] = interval_json(c.served.first_token, 1e3);
    point["tensor_parallel"] = c.deployment->tensor_parallel;
    point["tokens_per_s_a_device"] = fits ? Json(c.tokens_per_s_a_device()) : Json(nullptr);
    point["tpot_ms_interval"] = fits ? interval_json(c.prediction.step, 1e3) : Json(nullptr);
    point["tokens_per_s_interval"] = fits ? interval_json(c.prediction.tokens_per_s, 1) : Json(nullptr);
    point["largest_batch_interval"] = fits ? interval_json(c.served.interval, 1) : Json(nullptr);
    point["interval_from"] = fits ? Json(c.factors.text()) : Json(nullptr);
    point["batches"] = Json::array();
    for (const auto& [one, all] : c.batches) {
      point["batches"].push_back({{"tokens_per_s_a_sequence", one}, {"tokens_per_s_a_device", all}});
    }
  }
  json["front"] = Json::array();
  for (const auto& [one, all] : r.front) {
    json["front"].push_back({{"tokens_per_s_a_sequence", one}, {"tokens_per_s_a_device", all}});
  }
  json["notes"] = compare_notes(r);
  json["version"] = kVersion;
  return json.dump(2) + "\n";
}

}  // namespace kvroof
