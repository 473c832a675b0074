// kvroof compare: the same work on several devices and under several policies, ranked by speed, price and energy.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/plot.hpp"
#include "analysis/serving.hpp"
#include "apps/estimate_text.hpp"
#include "apps/intervals.hpp"
#include "apps/plan_search.hpp"
#include "apps/scatter.hpp"
#include "apps/shared_options.hpp"
#include "apps/values.hpp"
#include "apps/workload.hpp"
#include "kvroof_version.hpp"
#include "sim/core/suggest.hpp"
#include "traces/file_io.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

struct Contender {
  const Device* device = nullptr;
  const Workload* workload = nullptr;
  const Deployment* deployment = nullptr;
  Served served;            // the largest batch that fits and meets the goals
  std::uint64_t batch = 0;  // that one; 0: none
  Prediction prediction;  // of that batch; under load where the goals are
  IntervalFactors factors;
  // Tokens/s a sequence and of each device, at 1, 2, 4, … sequences.
  std::vector<std::pair<double, double>> batches;
  bool on_front = false;  // at one of them, none of the others is faster in both

  [[nodiscard]] double tokens_per_s() const { return batch > 0 ? prediction.tokens_per_s.value : 0; }
  [[nodiscard]] double tokens_per_s_a_sequence() const {
    return batch > 0 ? tokens_per_s() / static_cast<double>(batch) : 0;
  }
  [[nodiscard]] double devices() const { return deployment->tensor_parallel; }
  [[nodiscard]] double tokens_per_s_a_device() const { return tokens_per_s() / devices(); }
  // At the lowest and at the highest listed price; 0 without a price.
  [[nodiscard]] double tokens_per_usd(double usd_per_hour) const {
    return tokens_per_s_a_device() * 3600 / usd_per_hour;
  }
  [[nodiscard]] double tokens_per_usd() const {
    return device->price ? tokens_per_usd(device->price->high_usd_per_hour) : 0;
  }
  // At the power that the board may draw, so at least so many.
  [[nodiscard]] double tokens_per_joule() const {
    const auto& power = device->fact(DeviceField::kPowerW);
    return power ? tokens_per_s_a_device() / power->value : 0;
  }
  // "2 × h100-sxm, fp8": the device and, where they are not the only ones asked for, how many and which weights.
  [[nodiscard]] std::string name(bool several) const {
    if (!several) return device->name;
    const std::string count = devices() > 1 ? fmt::format("{} × ", deployment->tensor_parallel) : "";
    return fmt::format("{}{}, {}", count, device->name, deployment->weights.name);
  }
};

struct Measure {
  std::string_view name;
  double (*of)(const Contender&);
};
constexpr Measure kMeasures[] = {
    {"tokens_per_s", [](const Contender& c) { return c.tokens_per_s(); }},
    {"tokens_per_s_a_sequence", [](const Contender& c) { return c.tokens_per_s_a_sequence(); }},
    {"tokens_per_usd", [](const Contender& c) { return c.tokens_per_usd(); }},
    {"tokens_per_joule", [](const Contender& c) { return c.tokens_per_joule(); }},
};

const Measure& measure_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Measure& m : kMeasures) {
    if (m.name == name) return m;
    names.emplace_back(m.name);
  }
  throw usage_error(fmt::format("--by {}: unknown{}", name, did_you_mean(name, names))).note("known: " + join(names));
}

Contender contend(const WorkloadRequest& request, const Device& device, const Deployment& deployment,
                  const Workload& workload, const Goals& goals) {
  const CostModel cost(request.model, request.with_cache_of(workload.policy(), deployment), device,
                       request.engine_on(device));
  Contender c;
  c.device = &device;
  c.workload = &workload;
  c.deployment = &deployment;
  c.served = largest_served(request, deployment, device, workload, goals);
  c.batch = c.served.batch;
  if (c.batch == 0) return c;
  c.factors = interval_group(device, cost, "step")
                  .at({static_cast<double>(c.batch), static_cast<double>(request.prompt) + request.output,
                       static_cast<double>(deployment.tensor_parallel)});
  const Server server(cost, workload.mean(), workload.mean(), {request.prompt, request.output});
  const auto at = [&](std::uint64_t batch) {
    Prediction p = cost.predict(workload.mean(), batch);
    if (goals.under_load) {
      p.step = server.closed_loop(static_cast<std::uint32_t>(batch)).token;
      p.tokens_per_s = server.closed_loop_rate(static_cast<std::uint32_t>(batch));
    }
    return p;
  };
  c.prediction = at(c.batch);
  c.prediction.step = with_factors(c.prediction.step, c.factors);
  c.prediction.tokens_per_s = with_factors(c.prediction.tokens_per_s, c.factors);
  for (std::uint64_t batch = 1; batch <= c.batch; batch *= 2) {
    const double all = at(batch).tokens_per_s.value;
    c.batches.emplace_back(all / static_cast<double>(batch), all / c.devices());
  }
  c.batches.emplace_back(c.tokens_per_s_a_sequence(), c.tokens_per_s_a_device());
  return c;
}

// Marks those of which no other is better in both at every batch, and gives the front from left to right.
std::vector<std::pair<double, double>> mark_front(std::vector<Contender>& contenders) {
  std::vector<std::pair<double, double>> front;
  for (Contender& c : contenders) {
    for (const auto& point : c.batches) {
      const bool beaten = std::any_of(contenders.begin(), contenders.end(), [&](const Contender& other) {
        return std::any_of(other.batches.begin(), other.batches.end(), [&](const auto& rival) {
          return rival.first >= point.first && rival.second >= point.second && rival != point;
        });
      });
      if (beaten) continue;
      c.on_front = true;
      front.push_back(point);
    }
  }
  std::sort(front.begin(), front.end());
  front.erase(std::unique(front.begin(), front.end()), front.end());
  return front;
}

std::string or_dash(double x) { return x > 0 ? short_number(x) : "–"; }

std::string usd_text(const Contender& c) {
  if (!c.device->price || c.batch == 0) return "–";
  return fmt::format("{} to {}", short_number(c.tokens_per_usd(c.device->price->high_usd_per_hour) / 1e6),
                     short_number(c.tokens_per_usd(c.device->price->low_usd_per_hour) / 1e6));
}

// What was asked for, ranked.
struct Ranking {
  const WorkloadRequest& request;
  const Measure& by;
  const Goals& goals;
  std::vector<Contender> ranked;
  std::vector<std::pair<double, double>> front;

  [[nodiscard]] bool several() const { return request.deployments.size() > 1 || ranked.front().devices() > 1; }
  [[nodiscard]] std::string title(const Contender& c) const {
    return fmt::format("{} {}", c.name(several()), request.title(c.workload->policy()));
  }
};

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

Table compare_rows(const Ranking& r, bool several) {
  Table table;
  table.columns = {{"device", "device", false},
                   {"policy", "policy", false},
                   {"largest batch", "largest_batch"},
                   {"limited by", "limited_by", false},
                   {"ms a token", "tpot_ms"},
                   {"tokens/s", "tokens_per_s"},
                   {"tokens/s a sequence", "tokens_per_s_a_sequence"},
                   {"million tokens/$", "tokens_per_usd"},
                   {"tokens/J", "tokens_per_joule"},
                   {"on the front", "pareto", false},
                   {"most of a step", "step_limited_by", false}};
  for (const Contender& c : r.ranked) {
    const std::string policy = r.request.title(c.workload->policy());
    const bool fits = c.batch > 0;
    const std::string limit = fits ? std::string(name_of(c.prediction.limited_by)) : none_text(c);
    const auto raw = [](double x) { return x > 0 ? fmt::format("{}", x) : std::string(); };
    table.rows.push_back({c.name(several), policy, std::to_string(c.batch), c.served.limited_by,
                          fits ? with_interval(c.prediction.step, 1e3) : "–", or_dash(c.tokens_per_s()),
                          or_dash(c.tokens_per_s_a_sequence()), usd_text(c), or_dash(c.tokens_per_joule()),
                          c.on_front ? "yes" : "", limit});
    table.raw_rows.push_back({c.name(several), policy, std::to_string(c.batch), c.served.limited_by,
                              fits ? raw(c.prediction.step.value * 1e3) : "", raw(c.tokens_per_s()),
                              raw(c.tokens_per_s_a_sequence()), raw(c.tokens_per_usd()), raw(c.tokens_per_joule()),
                              c.on_front ? "yes" : "no", limit});
  }
  return table;
}

std::string answer_text(const Ranking& r) {
  const auto& [request, by, goals, ranked, front] = r;
  const Contender& best = ranked.front();
  std::string text = fmt::format("{}, {} + {} tokens a sequence, each device at the largest batch that fits{}: ",
                                 request.model.name, request.prompt, request.output, goals_text(goals));
  if (best.batch == 0) return text + "none of them holds even one sequence.";
  text +=
      fmt::format("{} under {} is first by {}", best.device->title, request.title(best.workload->policy()), by.name);
  const auto second = std::find_if(ranked.begin(), ranked.end(),
                                   [&](const Contender& c) { return c.device != best.device && by.of(c) > 0; });
  if (second == ranked.end()) return text + ".";
  return text + fmt::format(", {} times {} under {}.", short_number(by.of(best) / by.of(*second)),
                            second->device->title, request.title(second->workload->policy()));
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
  if (!dates.empty()) {
    notes.push_back(fmt::format(
        "$: one device for an hour at the highest to the lowest listed price, the latest of {}; no price, no figure",
        dates));
  }
  notes.emplace_back("tokens/J: at the power that the board may draw; what it does draw is less");
  return notes;
}

constexpr const char* kAcross = "tokens/s a sequence";
constexpr const char* kUpwards = "tokens/s a device";

std::string compare_table(const Ranking& r) {
  std::string text = format_paragraph(answer_text(r), 0) + "\n";
  text += format_table(compare_rows(r, r.several())) + "\n";
  std::vector<ScatterSeries> series;
  for (const Contender& c : r.ranked) {
    const char mark = static_cast<char>('A' + series.size() % 26);
    series.push_back({r.title(c), mark, c.batches});
  }
  text += scatter_text(series, fmt::format("{}, from the largest batch (left) to 1 (right)", kAcross), kUpwards) + "\n";
  for (const std::string& note : compare_notes(r)) text += format_paragraph(note, 0);
  return text;
}

// The same picture as a file: a line for each contender, and the front that none exceeds in both.
std::string compare_svg(const Ranking& r) {
  LineChart chart{fmt::format("{}, {} + {} tokens", r.request.model.name, r.request.prompt, r.request.output),
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

Json compare_json(const Ranking& r) {
  Json json;
  json["answer"] = answer_text(r);
  json["by"] = r.by.name;
  json["goals"] = {{"tpot_ms", r.goals.tpot_ms ? Json(*r.goals.tpot_ms) : Json(nullptr)},
                   {"ttft_ms", r.goals.ttft_ms ? Json(*r.goals.ttft_ms) : Json(nullptr)},
                   {"under_load", r.goals.under_load}};
  json["points"] = Json::parse(format_json_rows(compare_rows(r, false)));
  for (std::size_t i = 0; i < r.ranked.size(); ++i) {
    Json& point = json["points"][i];
    const Contender& c = r.ranked[i];
    const bool fits = c.batch > 0;
    point["policy"] = c.workload->policy().text();
    point["kv_type"] = name_of(r.request.with_cache_of(c.workload->policy(), *c.deployment).types.kv);
    point["weight_type"] = c.deployment->weights.name;
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
  return json;
}

int run_compare(const Arguments& arguments) {
  const WorkloadRequest request = workload_request(arguments);
  const Measure& by = measure_of(arguments.get<std::string>("by"));
  if (!arguments.has("device")) throw usage_error("--device is missing: `kvroof devices` lists the names");
  std::vector<Device> devices;
  for (const std::string& name : split_list("device", arguments.get<std::string>("device"))) {
    devices.push_back(find_device(name, data_folder() / "catalog"));
    for (std::size_t i = 0; i + 1 < devices.size(); ++i) {
      if (devices[i].name != devices.back().name) continue;
      throw usage_error(fmt::format("--device {}: {} is there twice", arguments.get<std::string>("device"), name))
          .note("a calibrated file of the same device needs another name in its first line to stand beside it");
    }
  }
  const std::vector<Workload> workloads = make_workloads(request, arguments);
  const Goals goals = time_goals(arguments);
  Ranking ranking{request, by, goals, {}, {}};
  for (const Device& device : devices) {
    for (const Deployment& deployment : request.deployments) {
      for (const Workload& w : workloads) ranking.ranked.push_back(contend(request, device, deployment, w, goals));
    }
  }
  std::stable_sort(ranking.ranked.begin(), ranking.ranked.end(),
                   [&](const Contender& a, const Contender& b) { return by.of(a) > by.of(b); });
  ranking.front = mark_front(ranking.ranked);
  if (arguments.has("svg")) write_text_file(arguments.get<std::string>("svg"), compare_svg(ranking));
  const Format format = format_of(arguments);
  write_result(arguments, format == Format::kJson  ? compare_json(ranking).dump(2) + "\n"
                          : format == Format::kCsv ? format_csv(compare_rows(ranking, ranking.several()))
                                                   : compare_table(ranking));
  return static_cast<int>(ranking.ranked.front().batch > 0 ? ExitCode::kOk : ExitCode::kGateFailed);
}

void describe_compare(po::options_description_easy_init add) {
  describe_workload(add);
  add("device", po::value<std::string>(),
      "names of the catalog or files, separated by commas; h200:bandwidth_gb_per_s=1.5x changes a fact");
  add("by", po::value<std::string>()->default_value("tokens_per_s"),
      "what ranks: tokens_per_s | tokens_per_s_a_sequence | tokens_per_usd | tokens_per_joule");
  describe_goals(add);
  add("svg", po::value<std::string>(), "write the picture of all batches and their Pareto front to this file");
}

constexpr std::string_view kCompareExamples =
    "  kvroof compare --model llama-3-8b --device h100-sxm,h200,b200,rtx-5090 --prompt 4k --output 1k\n"
    "  kvroof compare --model mpt-7b --device l40s,h200 --policy full,h2o --budget 0.5 --by tokens_per_usd\n"
    "  kvroof compare --model llama-3-8b --device h200,h200:bandwidth_gb_per_s=1.5x,h200:usable_mib=2x --prompt 8k\n"
    "  kvroof compare --model qwen3-32b --dtype fp8 --engine vllm --device h100-sxm,h200,b200,l40s --tpot-ms 30 "
    "--by tokens_per_usd";

}  // namespace

Command compare_command() {
  return {"compare", "the same work on several devices and policies: tokens/s, $ and J",
          "--model NAME --device NAME,… [options]", kCompareExamples, &describe_compare, &run_compare};
}

}  // namespace kvroof
