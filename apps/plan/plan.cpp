// kvroof plan: how many sequences a device holds and serves under a policy, how fast, and what to change.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/cli/wide_rows.hpp"
#include "apps/plan/plan_answer.hpp"
#include "apps/plan/plan_search.hpp"
#include "apps/prediction/accounting_output.hpp"
#include "apps/prediction/cached_prompt.hpp"
#include "apps/prediction/device_prices.hpp"
#include "apps/prediction/engine_hardware.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/intervals.hpp"
#include "apps/prediction/workload.hpp"
#include "kvroof_version.hpp"
#include "sim/core/bytes_text.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

Table times_table(const Plan& plan) {
  Table table;
  table.columns = {{"", "what", false},
                   {"value", "value"},
                   {"80 % interval", "80"},
                   {"95 % interval", "95"},
                   {"widest part", "part", false}};
  const auto add = [&](const char* what, const Estimate& e, double scale) {
    table.rows.push_back({what, number_text(e.value * scale), interval_text(e, scale), interval95_text(e, scale),
                          std::string(name_of(e.dominated_by))});
  };
  const Prediction& p = plan.prediction;
  if (!p.fits) table.columns[0].title = fmt::format("if {} fitted", sequences_text(p.batch));
  add("time per token, mean step (ms)", p.token(), 1e3);
  add("time per token, 99 % of steps (ms)", plan.p99_step, 1e3);
  add("time per token, worst step (ms)", plan.worst_step, 1e3);
  add("first token of one prompt (ms)", plan.first_token, 1e3);
  add("tokens/s", p.tokens_per_s, 1);
  add("tokens/s a sequence", p.tokens_per_s, 1 / static_cast<double>(p.batch));
  if (plan.load) {
    add("under load: time per token (ms)", plan.load->token, 1e3);
    add("under load: first token (ms)", plan.load->first_token, 1e3);
    add("under load: tokens/s", plan.load->tokens_per_s, 1);
  }
  if (plan.drafts) {
    add("time per token without drafts (ms)", plan.drafts->token_without, 1e3);
    add("a step that drafts and verifies (ms)", plan.drafts->step, 1e3);
    add("of it, drafting (ms)", plan.drafts->drafting, 1e3);
  }
  const Estimate& e = plan.largest_interval;
  table.rows.push_back({"largest batch", fmt::format("{:.0f}", e.value),
                        fmt::format("{:.0f} to {:.0f}", e.low80, e.high80),
                        fmt::format("{:.0f} to {:.0f}", e.low95, e.high95), std::string(name_of(e.dominated_by))});
  return table;
}

// What was searched, where that was more than one deployment.
Table search_table(const Question& q) {
  Table table;
  table.columns = {{"weights", "weight_type", false},
                   {"KV", "kv_type", false},
                   {"devices", "devices"},
                   {"largest batch", "largest_batch"},
                   {"longest prompt", "longest_prompt"},
                   {"ms a token", "tpot_ms"},
                   {"first token ms", "ttft_ms"},
                   {"tokens/s", "tokens_per_s"},
                   {"a device", "a_device"},
                   {"limited by", "limited_by", false}};
  const bool drafts = drafts_anything(q.request.deployments);
  const bool layouts = names_layouts(q.request.deployments);
  if (layouts) table.columns.push_back({"layout", "layout", false});
  if (drafts) table.columns.push_back({"drafts", "drafts", false});
  for (const Plan& plan : q.plans) {
    const bool met = plan.met();
    table.rows.push_back({std::string(plan.deployment.weights.name), std::string(name_of(kv_type_of(q, plan))),
                          std::to_string(plan.devices()), std::to_string(plan.largest),
                          plan.longest_prompt > 0 ? std::to_string(plan.longest_prompt) : "–",
                          met ? with_interval(plan.told().token, 1e3) : "–",
                          plan.holds_one() && plan.has_told() ? with_interval(plan.told().first_token, 1e3) : "–",
                          met ? number_text(plan.told().tokens_per_s.value) : "–",
                          met ? number_text(plan.tokens_per_s_a_device()) : "–", plan.limited_by});
    if (layouts) table.rows.back().push_back(layout_options(plan.deployment));
    if (drafts) table.rows.back().push_back(drafts_or_none(plan.deployment));
  }
  return table;
}

Table ledger_table(const Plan& plan) {
  Table table;
  table.columns = {
      {fmt::format("memory{}, batch {}", plan.devices() > 1 ? " of each device" : "", plan.prediction.batch), "name",
       false},
      {"GiB", "gib"},
      {"share", "share"}};
  const auto add = [&](const char* name, Bytes bytes) {
    const double share = gib(bytes) / gib(plan.ledger.capacity);
    table.rows.push_back({name, number_text(gib(bytes)), fmt::format("{:.1f} %", 100 * share)});
  };
  for (const LedgerLine& line : lines_of(plan.ledger)) add(line.name, line.bytes);
  add("sum", plan.ledger.total());
  add("usable on the device", plan.ledger.capacity);
  return table;
}

Accounting accounting_of(const Question& q, const Plan& plan) {
  const auto& speculation = plan.deployment.speculation;
  return account(q.request.model, q.request.with_cache_of(plan.workload->policy(), plan.deployment).types,
                 plan.workload->mean(), std::max<std::uint64_t>(plan.batch, 1),
                 speculation ? speculation->step_tokens() : StepTokens{});
}

// Under load.
std::optional<UsdRange> load_price(const Question& q, const Plan& plan) {
  if (!plan.load) return std::nullopt;
  return price_of_million_tokens(price_of_hour(q.device, plan.devices()), plan.load->tokens_per_s.value);
}

std::vector<std::string> notes_of(const Question& q, const Plan& plan) {
  std::vector<std::string> notes = workload_notes(q.request, std::array{&q.device});
  for (std::string& note : cached_prompt_notes(q.request, {plan.workload})) notes.push_back(std::move(note));
  for (std::string& note : mean_request_notes(q.request)) notes.push_back(std::move(note));
  for (std::string& note : goal_notes(q.goals)) notes.push_back(std::move(note));
  const Accounting a = accounting_of(q, plan);
  if (a.kv_allocated_paged > a.kv_allocated) {
    const bool paged = q.request.engine_on(q.device).paged_cache;
    notes.push_back(fmt::format("the batch's cache takes {} in rows and {} in whole pages of {} rows of one head; this "
                                "engine has it in {}",
                                bytes_text(a.kv_allocated), bytes_text(a.kv_allocated_paged), kPageRows,
                                paged ? "pages" : "rows"));
  }
  if (q.request.engine_on(q.device).keeps_hidden_rows && !q.request.model.layer_windows.empty() &&
      !plan.workload->mean().evicts) {
    notes.emplace_back("this engine keeps the rows that windows hide as well: the memory above has them, the "
                       "accounting of what attention can meet has not");
  }
  if (plan.load) {
    const std::uint64_t clients = std::max<std::uint64_t>(plan.batch, 1);
    notes.push_back(fmt::format("under load: {} that send{} the next request as soon as one is answered, with lengths "
                                "around those given; a token then also waits for others' prompts",
                                clients == 1 ? "one client" : fmt::format("{} clients", clients),
                                clients == 1 ? "s" : ""));
    if (const auto usd = load_price(q, plan)) {
      notes.push_back(fmt::format("under that load a million tokens cost ${}, at {}",
                                  usd_range(usd->low_usd, usd->high_usd), price_text(*q.device.price)));
    }
  }
  notes.push_back(interval_note(plan.step_factors, plan.prediction.step.unmeasured > 0));
  return notes;
}

std::string plan_table(const Question& q, const Plan& plan) {
  std::string text = format_paragraph(answer_text(q, plan), 0) + "\n";
  text += format_table(times_table(plan)) + "\n" + format_table(ledger_table(plan)) + "\n";
  if (q.plans.size() > 1) text += format_table(search_table(q)) + "\n";
  text += format_paragraph(advice_text(q, plan), 0);
  for (const std::string& note : notes_of(q, plan)) text += format_paragraph(note, 0);
  return text;
}

Json deployment_json(const Question& q, const Plan& plan) {
  Json json = {{"weight_type", plan.deployment.weights.name}, {"kv_type", name_of(kv_type_of(q, plan))}};
  add_layout(json, plan.deployment);
  json["meets_goals"] = plan.met();
  json["largest_batch"] = plan.largest;
  json["longest_prompt"] = plan.longest_prompt;
  json["limited_by"] = plan.limited_by;
  return json;
}

Json searched_json(const Question& q, const Plan& plan) {
  const Load told = plan.told();
  const bool fits = plan.prediction.fits;
  Json json = deployment_json(q, plan);
  json["tpot_ms"] = if_any(fits, interval_json(told.token, 1e3));
  json["ttft_ms"] = plan.holds_one() && plan.has_told() ? interval_json(told.first_token, 1e3) : Json(nullptr);
  json["tokens_per_s"] = if_any(fits, interval_json(told.tokens_per_s, 1));
  json["tokens_per_s_a_device"] = if_any(fits, interval_json(told.tokens_per_s, 1.0 / plan.devices()));
  if (drafts_anything(q.request.deployments)) json["drafts"] = drafts_or_none(plan.deployment);
  return json;
}

Json drafts_json(const Plan& plan) {
  Json json = gain_json(plan.drafts);
  json["largest_batch_without"] = plan.largest_without_drafts;
  json["batch_without"] = plan.batch_without_drafts;
  json["tokens_per_s_without"] = plan.tokens_per_s_without_drafts;
  return if_any(plan.drafts.has_value(), std::move(json));
}

Json load_json(const Question& q, const Plan& plan) {
  const Load load = plan.load.value_or(Load{});
  return if_any(plan.load.has_value(), {{"clients", std::max<std::uint64_t>(plan.batch, 1)},
                                        {"tpot_ms", interval_json(load.token, 1e3)},
                                        {"ttft_ms", interval_json(load.first_token, 1e3)},
                                        {"tokens_per_s", interval_json(load.tokens_per_s, 1)},
                                        {"usd_per_million_tokens", price_json(load_price(q, plan))}});
}

// Of one deployment with one cache.
Json plan_row(const Question& q, const Plan& plan) {
  const Prediction& p = plan.prediction;
  Json json = {{"model", q.request.model.name},
               {"device", q.device.name},
               {"engine", q.request.engine_text(q.device)},
               {"policy", plan.workload->policy().text()},
               {"prompt", q.request.prompt},
               {"output", q.request.output},
               {"cached_tokens", plan.workload->mean().cached},
               {"batch", plan.batch}};
  json.update(deployment_json(q, plan));
  json["largest_batch_interval"] = interval_json(plan.largest_interval, 1);
  json["largest_batch_in_memory"] = plan.largest_in_memory;
  json["step_limited_by"] = most_of_step(p, plan.told().token.value);
  const auto if_it_fits = [&](const Estimate& e, double unit) { return if_any(p.fits, interval_json(e, unit)); };
  json["tpot_ms"] = if_it_fits(p.token(), 1e3);
  json["tpot_p99_step_ms"] = if_it_fits(plan.p99_step, 1e3);
  json["tpot_worst_step_ms"] = if_it_fits(plan.worst_step, 1e3);
  json["ttft_ms"] = if_any(plan.holds_one(), interval_json(plan.first_token, 1e3));
  json["tokens_per_s"] = if_it_fits(p.tokens_per_s, 1);
  if (drafts_anything(q.request.deployments)) json["speculation"] = drafts_json(plan);
  json["under_load"] = plan.under_load;
  json["load"] = load_json(q, plan);
  json["intervals_from"] = {{"tpot_ms", plan.step_factors.text()},
                            {"ttft_ms", plan.first_token_factors.text()},
                            {"largest_batch", plan.memory_factors.text()}};
  json["capacity_bytes"] = plan.ledger.capacity.value;
  json["kv_allocated_bytes"] = plan.ledger.kv_allocated.value;  // which a coded cache has in several lines
  json["ledger"] = Json::array();
  for (const LedgerLine& line : lines_of(plan.ledger)) {
    json["ledger"].push_back({{"name", line.key}, {"bytes", line.bytes.value}});
  }
  json["accounting"] = accounting_json(accounting_of(q, plan));
  return json;
}

Json plan_json(const Question& q, const Plan& plan) {
  Json json = {{"answer", answer_text(q, plan)}, {"fits", plan.batch > 0 && plan.prediction.fits}};
  json.update(folded(plan_row(q, plan)));
  if (!plan.drafts) json.erase("speculation");
  json["searched"] = Json::array();
  for (const Plan& other : q.plans) json["searched"].push_back(folded(searched_json(q, other)));
  json["remedies"] = Json::array();
  for (const Remedy& r : q.remedies) json["remedies"].push_back({{"change", r.change}, {"largest_batch", r.batch}});
  json["notes"] = notes_of(q, plan);
  json["version"] = kVersion;
  return json;
}

// A row for each deployment and cache that was searched; `chosen` is the one that the answer is about.
std::string plan_csv(const Question& q, const Plan& chosen) {
  WideRows rows;
  for (const Plan& plan : q.plans) {
    Json row = plan_row(q, plan);
    row["chosen"] = &plan == &chosen;
    for (const LedgerLine& line : lines_of(plan.ledger)) row[fmt::format("{}_bytes", line.key)] = line.bytes.value;
    unnest(row, "speculation");
    rows.add_cells(row);
    rows.end_row();
  }
  return rows.csv();
}

// `--prompt max`: the longest prompt that the batch of the goals fits and meets them with. What a policy keeps is
// projected from one prompt to another and then taken from a replay at the length found, which may be a few tokens off.
void find_longest_prompt(WorkloadRequest& request, const Arguments& arguments, const Device& device,
                         const Goals& goals) {
  constexpr int kRounds = 8;  // nominal recordings of other lengths; a few tokens off after the second
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<Workload> workloads = make_workloads(request, arguments);
    std::uint32_t longest = 0;
    for (const Plan& plan : search_plans(request, device, workloads, goals)) {
      longest = std::max(longest, plan.longest_prompt);
    }
    if (longest == 0) longest = 1;  // The plan then says what is missing.
    if (std::exchange(request.prompt, std::min(longest, request.prompt)) <= longest) return;
  }
}

int run_plan(const Arguments& arguments) {
  const auto require_one = [](std::size_t given) {
    if (given == 1) return;
    throw usage_error(fmt::format("plan answers for one policy with one budget; {} were given", given))
        .note("`kvroof compare` takes several");
  };
  require_one(named_policies(arguments));  // before any of them lacks a budget
  WorkloadRequest request = workload_request(arguments);
  set_cached_prompt(arguments, request);
  require_one(policy_points(arguments).size());
  if (!arguments.has("device")) throw usage_error("--device is missing: `kvroof devices` lists the names");
  if (arguments.get<std::string>("device").find(',') != std::string::npos) {
    throw usage_error(fmt::format("--device {}: plan answers for one device", arguments.get<std::string>("device")))
        .note("`kvroof compare` takes several");
  }
  Device device = find_device(arguments.get<std::string>("device"), data_folder() / "catalog");
  check_runs_on(request, device);
  set_prices(arguments, std::span(&device, 1));
  Goals goals = goals_of(arguments, request.output);
  const bool longest_prompt = arguments.get<std::string>("prompt") == "max";
  if (longest_prompt) {
    goals.batch = goals.batch.value_or(1);
    find_longest_prompt(request, arguments, device, goals);
  }
  const std::vector<Workload> workloads = make_workloads(request, arguments);
  const std::vector<Plan> plans = search_plans(request, device, workloads, goals);
  const Plan& plan = plans[best_plan(plans)];
  Question question{request, device, goals, plans, {}, longest_prompt};
  if (!plan.met()) question.remedies = remedies(request, plan, device, goals);
  const Format format = format_of(arguments);
  write_result(arguments, format == Format::kJson  ? plan_json(question, plan).dump(2) + "\n"
                          : format == Format::kCsv ? plan_csv(question, plan)
                                                   : plan_table(question, plan));
  return static_cast<int>(plan.met() ? ExitCode::kOk : ExitCode::kGateFailed);
}

void describe_plan(po::options_description_easy_init add) {
  describe_workload(add);
  describe_cached_prompt(add);
  add("device", po::value<std::string>(),
      "a name of the catalog, or a file; h200:bandwidth_gb_per_s=1.5x changes a fact");
  describe_prices(add);
  describe_goals(add);
}

constexpr std::string_view kPlanExamples =
    "  kvroof plan --model llama-3-8b --device h100-sxm --policy keyformer:budget=0.5 --prompt 4k --output 1k\n"
    "  kvroof plan --model llama-3-8b --device h100-sxm --policy h2o:budget=0.5 --prompt 4k --output 1k --tpot-ms 30\n"
    "  kvroof plan --model llama-3-70b --device h100-sxm --dtype auto --tp auto --kv auto --tpot-ms 40 --ttft-ms 2000\n"
    "  kvroof plan --model llama-3-8b --device l40s --policy h2o:budget=0.2 --prompt max --batch 8 --tpot-ms 40\n"
    "  kvroof plan --model models/demo --device cpu.yaml --trace run.kvt --policy window:budget=512 --batch 4";

}  // namespace

Command plan_command() {
  return {"plan", "how many sequences a device serves under a policy, how fast, and what to change",
          "--model NAME --device NAME [options]", kPlanExamples, &describe_plan, &run_plan};
}

}  // namespace kvroof
