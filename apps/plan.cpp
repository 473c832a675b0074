// kvroof plan: how many sequences a device holds and serves under a policy, how fast, and what to change.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/accounting_output.hpp"
#include "apps/estimate_text.hpp"
#include "apps/shared_options.hpp"
#include "apps/values.hpp"
#include "apps/workload.hpp"
#include "kvroof_version.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

constexpr std::uint32_t kMostBatch = 1U << 20;

struct Goals {
  std::optional<std::uint64_t> batch;  // nothing: the largest
  std::optional<double> tpot_ms, ttft_ms;
};

// The slowest of the steps of a sequence, and the one that 99 % of them do not exceed, in seconds.
struct StepSpread {
  double p99 = 0, worst = 0;
};

struct Plan {
  std::uint64_t batch = 0;
  std::uint64_t largest_in_memory = 0;  // whatever the time
  std::uint64_t largest = 0;            // that also meets the goals
  std::string limited_by;  // what allows no larger batch: capacity, tpot, ttft; of a batch that was given, its step's
  Prediction prediction;
  Estimate first_token;  // of one prompt by itself
  StepSpread steps;
  MemoryLedger ledger;
  std::uint32_t longest_prompt = 0;  // that fits with this batch; 0: none
};

// The largest x in [low, high] that satisfies `holds`, which holds up to some x and not beyond; low − 1 when it never
// does.
template <class Holds>
std::uint64_t largest_that(std::uint64_t low, std::uint64_t high, Holds holds) {
  while (low <= high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (holds(middle)) {
      low = middle + 1;
    } else {
      if (middle == 0) break;
      high = middle - 1;
    }
  }
  return low - 1;
}

StepSpread step_spread(const CostModel& cost, const Workload& workload, std::uint64_t batch) {
  std::vector<double> seconds;
  for (const ResidencySummary& step : workload.steps()) seconds.push_back(cost.predict(step, batch).step.value);
  std::sort(seconds.begin(), seconds.end());
  const std::size_t rank = (99 * seconds.size() + 99) / 100;  // ⌈0.99 n⌉
  return {seconds[rank - 1], seconds.back()};
}

Plan make_plan(const CostModel& cost, const Workload& workload, const WorkloadRequest& request, const Goals& goals) {
  Plan plan;
  const ResidencySummary& mean = workload.mean();
  plan.largest_in_memory = cost.largest_batch(mean);
  plan.first_token = cost.prefill(mean, 1);
  plan.largest = plan.largest_in_memory;
  if (goals.tpot_ms) {
    plan.largest = largest_that(1, plan.largest_in_memory, [&](std::uint64_t batch) {
      return cost.predict(mean, batch).step.value * 1e3 <= *goals.tpot_ms;
    });
  }
  const bool first_token_late = goals.ttft_ms && plan.first_token.value * 1e3 > *goals.ttft_ms;
  if (first_token_late) plan.largest = 0;
  plan.batch = goals.batch.value_or(plan.largest);
  const std::uint64_t shown = std::max<std::uint64_t>(plan.batch, 1);
  plan.prediction = cost.predict(mean, shown);
  plan.ledger = cost.ledger(mean, shown);
  plan.steps = step_spread(cost, workload, shown);
  const bool goal_binds = plan.largest < plan.largest_in_memory;
  if (!goals.batch) {
    plan.limited_by = !goal_binds ? "capacity" : first_token_late ? "ttft" : "tpot";
  } else {
    plan.limited_by = name_of(plan.prediction.limited_by);
  }
  plan.longest_prompt = static_cast<std::uint32_t>(largest_that(
      1, std::max<std::uint32_t>(request.model.max_positions, request.prompt + request.output) - request.output,
      [&](std::uint64_t prompt) {
        return cost.ledger(workload.with_prompt(static_cast<std::uint32_t>(prompt)), shown).fits();
      }));
  return plan;
}

struct LedgerLine {
  const char* name;
  const char* key;
  Bytes bytes;
};

std::vector<LedgerLine> lines_of(const MemoryLedger& m) {
  return {{"weights", "weights", m.weights},
          {"KV cache", "kv_allocated", m.kv_allocated},
          {"policy state", "policy_state", m.policy_state},
          {"activations", "activations", m.activations},
          {"prefill transient", "prefill_transient", m.prefill_transient},
          {"engine reserve", "reserve", m.reserve}};
}

struct Question {
  const WorkloadRequest& request;
  const Device& device;
  const Goals& goals;
  const Workload& workload;
};

std::string lengths_text(const WorkloadRequest& r) { return fmt::format("{} + {} tokens", r.prompt, r.output); }

std::string answer_text(const Question& q, const Plan& plan) {
  const std::string subject = fmt::format("{} under {} on {}, {} a sequence", q.request.model.name,
                                          q.workload.policy().text(), q.device.title, lengths_text(q.request));
  if (plan.largest_in_memory == 0) {
    return fmt::format("{}: not even one sequence fits; {} of {} GiB are missing.", subject,
                       short_number(gib(plan.ledger.total()) - gib(plan.ledger.capacity)),
                       short_number(gib(plan.ledger.capacity)));
  }
  if (plan.batch == 0) {
    return fmt::format("{}: not even one sequence meets the goal: {} ms a token, {} ms for its prompt.", subject,
                       short_number(plan.prediction.step.value * 1e3),
                       short_number(plan.first_token.value * 1e3));
  }
  const Prediction& p = plan.prediction;
  const std::string speed = fmt::format("{} tokens/s at {} ms a token", short_number(p.tokens_per_s.value),
                                        short_number(p.step.value * 1e3));
  if (q.goals.batch) {
    return p.fits ? fmt::format("{}: {} sequences fit (at most {}) and make {}; most of a step goes to {}.", subject,
                                plan.batch, plan.largest_in_memory, speed, name_of(p.limited_by))
                  : fmt::format("{}: {} sequences do not fit, at most {} do.", subject, plan.batch,
                                plan.largest_in_memory);
  }
  return fmt::format("{}: {} sequences at once, {}; {} allows no more, and most of a step goes to {}.", subject,
                     plan.batch, speed, plan.limited_by == "capacity" ? "memory" : "the goal", name_of(p.limited_by));
}

// What would let more sequences in.
std::string advice_text(const Plan& plan) {
  if (plan.limited_by == "tpot") {
    return fmt::format("memory would hold {} sequences; a faster device or a smaller budget allows more in time",
                       plan.largest_in_memory);
  }
  if (plan.longest_prompt == 0) {
    return "no prompt fits: take a device with more memory, smaller weights (--dtype) or a smaller --batch";
  }
  const auto lines = lines_of(plan.ledger);
  const auto largest = std::max_element(lines.begin(), lines.end(),
                                        [](const LedgerLine& a, const LedgerLine& b) { return a.bytes < b.bytes; });
  const std::string change =
      largest->bytes == plan.ledger.kv_allocated
          ? "a smaller budget or a smaller type of the cache (--kv) lets more sequences in"
          : "the KV cache is not what fills the memory: a smaller budget lets few more sequences in";
  return fmt::format("the longest prompt that fits with this batch is {} tokens; {}", plan.longest_prompt, change);
}

Table times_table(const Plan& plan) {
  Table table;
  table.columns = {{"", "what", false}, {"value", "value"}, {"80 % interval", "80"}, {"widest part", "part", false}};
  const auto add = [&](const char* what, const Estimate& e, double scale) {
    table.rows.push_back({what, short_number(e.value * scale), interval_text(e, scale),
                          std::string(kCostTermNames[static_cast<std::size_t>(e.dominated_by)])});
  };
  const Prediction& p = plan.prediction;
  add("time per token, mean step (ms)", p.step, 1e3);
  const auto scaled = [&](double seconds) {
    const double factor = seconds / p.step.value;
    return Estimate{seconds, p.step.low80 * factor, p.step.high80 * factor, 0, 0, p.step.dominated_by};
  };
  add("time per token, 99 % of steps (ms)", scaled(plan.steps.p99), 1e3);
  add("time per token, worst step (ms)", scaled(plan.steps.worst), 1e3);
  add("first token of one prompt (ms)", plan.first_token, 1e3);
  add("tokens/s", p.tokens_per_s, 1);
  add("tokens/s a sequence", p.tokens_per_s, 1 / static_cast<double>(p.batch));
  return table;
}

Table ledger_table(const Plan& plan) {
  Table table;
  table.columns = {
      {fmt::format("memory, batch {}", plan.prediction.batch), "name", false}, {"GiB", "gib"}, {"share", "share"}};
  const auto add = [&](const char* name, Bytes bytes) {
    const double share = gib(bytes) / gib(plan.ledger.capacity);
    table.rows.push_back({name, short_number(gib(bytes)), fmt::format("{:.1f} %", 100 * share)});
  };
  for (const LedgerLine& line : lines_of(plan.ledger)) add(line.name, line.bytes);
  add("sum", plan.ledger.total());
  add("usable on the device", plan.ledger.capacity);
  return table;
}

std::string plan_table(const Question& q, const Plan& plan) {
  std::string text = format_paragraph(answer_text(q, plan), 0) + "\n";
  text += format_table(times_table(plan)) + "\n" + format_table(ledger_table(plan)) + "\n";
  text += format_paragraph(advice_text(plan), 0);
  for (const std::string& note : workload_notes(q.request)) text += format_paragraph(note, 0);
  return text;
}

Json plan_json(const Question& q, const Plan& plan) {
  const Prediction& p = plan.prediction;
  Json json;
  json["answer"] = answer_text(q, plan);
  json["model"] = q.request.model.name;
  json["device"] = q.device.name;
  json["policy"] = q.workload.policy().text();
  json["engine"] = q.request.engine_on(q.device).name;
  json["prompt"] = q.request.prompt;
  json["output"] = q.request.output;
  json["weight_type"] = name_of(q.request.types.weights);
  json["kv_type"] = name_of(q.request.types.kv);
  json["batch"] = plan.batch;
  json["fits"] = plan.batch > 0 && p.fits;
  json["largest_batch"] = plan.largest;
  json["largest_batch_in_memory"] = plan.largest_in_memory;
  json["limited_by"] = plan.limited_by;
  json["step_limited_by"] = name_of(p.limited_by);
  json["tpot_ms"] = interval_json(p.step, 1e3);
  json["tpot_p99_step_ms"] = plan.steps.p99 * 1e3;
  json["tpot_worst_step_ms"] = plan.steps.worst * 1e3;
  json["ttft_ms"] = interval_json(plan.first_token, 1e3);
  json["tokens_per_s"] = interval_json(p.tokens_per_s, 1);
  json["longest_prompt"] = plan.longest_prompt;
  json["capacity_bytes"] = plan.ledger.capacity.value;
  json["ledger"] = Json::array();
  for (const LedgerLine& line : lines_of(plan.ledger)) {
    json["ledger"].push_back({{"name", line.key}, {"bytes", line.bytes.value}});
  }
  json["accounting"] = accounting_json(
      account(q.request.model, q.request.types, q.workload.mean(), std::max<std::uint64_t>(plan.batch, 1)));
  json["notes"] = workload_notes(q.request);
  json["version"] = kVersion;
  return json;
}

Table plan_row(const Question& q, const Plan& plan) {
  const Prediction& p = plan.prediction;
  Table table;
  std::vector<std::string> row;
  const auto add = [&](const std::string& key, std::string text, bool number = true) {
    table.columns.push_back({key, key, number});
    row.push_back(std::move(text));
  };
  add("model", q.request.model.name, false);
  add("device", q.device.name, false);
  add("policy", q.workload.policy().text(), false);
  add("batch", std::to_string(plan.batch));
  add("largest_batch", std::to_string(plan.largest));
  add("limited_by", plan.limited_by, false);
  const auto add_estimate = [&](const std::string& key, const Estimate& e, double scale) {
    add(key, fmt::format("{}", e.value * scale));
    add(key + "_low80", fmt::format("{}", e.low80 * scale));
    add(key + "_high80", fmt::format("{}", e.high80 * scale));
  };
  add_estimate("tpot_ms", p.step, 1e3);
  add_estimate("ttft_ms", plan.first_token, 1e3);
  add_estimate("tokens_per_s", p.tokens_per_s, 1);
  for (const LedgerLine& line : lines_of(plan.ledger)) {
    add(fmt::format("{}_bytes", line.key), std::to_string(line.bytes.value));
  }
  add("capacity_bytes", std::to_string(plan.ledger.capacity.value));
  table.rows.push_back(std::move(row));
  return table;
}

Goals goals_of(const Arguments& arguments) {
  Goals goals;
  const std::string batch = arguments.get<std::string>("batch");
  if (batch != "max") goals.batch = count_value("batch", batch, 1, kMostBatch);
  const auto milliseconds = [&](const char* option) -> std::optional<double> {
    if (!arguments.has(option)) return std::nullopt;
    return number_value(option, arguments.get<std::string>(option), 1e-3, 1e9);
  };
  goals.tpot_ms = milliseconds("tpot-ms");
  goals.ttft_ms = milliseconds("ttft-ms");
  if (goals.batch && (goals.tpot_ms || goals.ttft_ms)) {
    throw usage_error("--batch N and a goal contradict each other: a goal asks for the largest batch that meets it")
        .note("leave --batch away, or the goal");
  }
  return goals;
}

int run_plan(const Arguments& arguments) {
  const WorkloadRequest request = workload_request(arguments);
  if (request.points.size() != 1) {
    throw usage_error(fmt::format("plan answers for one policy with one budget; {} were given", request.points.size()))
        .note("`kvroof compare` takes several");
  }
  if (!arguments.has("device")) throw usage_error("--device is missing: `kvroof devices` lists the names");
  const Device device = find_device(arguments.get<std::string>("device"), data_folder() / "catalog");
  const Goals goals = goals_of(arguments);
  const std::vector<Workload> workloads = make_workloads(request, arguments);
  const CostModel cost(request.model, request.types, device, request.engine_on(device));
  const Plan plan = make_plan(cost, workloads.front(), request, goals);
  const Question question{request, device, goals, workloads.front()};
  const Format format = format_of(arguments);
  write_result(arguments, format == Format::kJson  ? plan_json(question, plan).dump(2) + "\n"
                          : format == Format::kCsv ? format_csv(plan_row(question, plan))
                                                   : plan_table(question, plan));
  const bool met = plan.batch > 0 && plan.prediction.fits;
  return static_cast<int>(met ? ExitCode::kOk : ExitCode::kGateFailed);
}

void describe_plan(po::options_description_easy_init add) {
  describe_workload(add);
  add("device", po::value<std::string>(), "a name of the catalog, or a file");
  add("batch", po::value<std::string>()->default_value("max"),
      "sequences at once; max: the most that fit and meet the goals");
  add("tpot-ms", po::value<std::string>(), "goal: a mean step takes at most so many milliseconds");
  add("ttft-ms", po::value<std::string>(), "goal: one prompt takes at most so many milliseconds");
}

constexpr std::string_view kPlanExamples =
    "  kvroof plan --model llama-3-8b --device h100-sxm --policy keyformer:budget=0.5 --prompt 4k --output 1k\n"
    "  kvroof plan --model llama-3-8b --device h100-sxm --policy h2o:budget=0.5 --prompt 4k --output 1k --tpot-ms 30\n"
    "  kvroof plan --model models/demo --device cpu.yaml --trace run.kvt --policy window:budget=512 --batch 4";

}  // namespace

Command plan_command() {
  return {"plan", "how many sequences a device serves under a policy, how fast, and what to change",
          "--model NAME --device NAME [options]", kPlanExamples, &describe_plan, &run_plan};
}

}  // namespace kvroof
