#include "apps/plan/plan_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/serving.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/prediction/intervals.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kMostBatch = 1U << 20;

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

// One deployment priced with intervals from measured rows.
class Pricing {
 public:
  Pricing(const WorkloadRequest& request, const Deployment& deployment, const Device& device, const Workload& workload,
          const Goals& goals)
      : cost_(request.model, request.with_cache_of(workload.policy(), deployment), device, request.engine_on(device)),
        workload_(workload),
        goals_(goals),
        output_(request.output),
        tokens_(static_cast<double>(request.prompt) + request.output),
        devices_(deployment.devices()),
        steps_(interval_group(device, cost_, "step")),
        first_tokens_(interval_group(device, cost_, prompt_metric(workload.mean().computed_tokens()))),
        queued_(interval_group(device, cost_, "first token")),
        memory_(interval_group(device, cost_, "memory").inside) {}

  [[nodiscard]] const CostModel& cost() const { return cost_; }
  [[nodiscard]] const IntervalFactors& memory_factors() const { return memory_; }
  [[nodiscard]] IntervalFactors step_factors(std::uint64_t batch) const { return steps_.at(reach(batch)); }
  [[nodiscard]] IntervalFactors first_token_factors() const { return first_tokens_.at(reach(1)); }
  [[nodiscard]] Prediction predict(const ResidencySummary& residency, std::uint64_t batch) const {
    return with_factors(cost_.predict(residency, batch), step_factors(batch));
  }
  [[nodiscard]] Estimate first_token() const {
    return with_factors(cost_.prefill(workload_.mean(), 1), first_token_factors());
  }
  [[nodiscard]] Load load(std::uint32_t clients) const {
    const Server loop = server(workload_.mean());
    const RequestTimes served = loop.closed_loop(clients);
    const IntervalFactors steps = step_factors(clients);
    return {queued_first_token(served.first_token, clients), with_factors(served.token, steps),
            with_factors(loop.closed_loop_rate(clients), steps)};
  }
  // What the goals are of, without intervals of measured rows.
  [[nodiscard]] Times times(const ResidencySummary& residency, std::uint64_t batch) const {
    if (!goals_.under_load) return {cost_.prefill(residency, 1), cost_.predict(residency, batch).token()};
    const RequestTimes served = server(residency).closed_loop(static_cast<std::uint32_t>(batch));
    return {served.first_token, served.token};
  }
  [[nodiscard]] Times times(std::uint64_t batch) const {
    const Times t = times(workload_.mean(), batch);
    const Estimate first = goals_.under_load ? queued_first_token(t.first_token, batch)
                                             : with_factors(t.first_token, first_token_factors());
    return {first, with_factors(t.token, step_factors(batch))};
  }
  // The largest batch if memory needed `memory` times as much and times were at the given end of their interval.
  [[nodiscard]] std::uint64_t largest(double memory, double Estimate::* time) const {
    const std::uint64_t fits = cost_.memory().largest_batch(workload_.mean(), memory);
    if (!goals_.tpot_ms && !goals_.ttft_ms) return fits;
    return largest_that(1, fits, [&](std::uint64_t batch) { return goals_.met(times(batch), time); });
  }
  // Whether the engine's scheduler takes so many at once.
  [[nodiscard]] bool takes(std::uint64_t batch) const {
    return static_cast<double>(cost_.deployment().of_a_group(batch)) <= cost_.engine().largest_batch;
  }
  // Whether so many sequences fit and meet the goals with another prompt.
  [[nodiscard]] bool met(std::uint32_t prompt, std::uint64_t batch) const {
    const ResidencySummary residency = workload_.with_prompt(prompt);
    return takes(batch) && cost_.memory().ledger(residency, batch).fits() &&
           goals_.met(times(residency, batch), &Estimate::value);
  }
  // What allows no batch above the largest.
  [[nodiscard]] const char* limit_of(std::uint64_t largest) const {
    if (largest < cost_.memory().largest_batch(workload_.mean())) {
      return goals_.first_token_in_time(times(largest + 1).first_token.value) ? "tpot" : "ttft";
    }
    const auto of_a_group = static_cast<double>(cost_.deployment().of_a_group(largest));
    return of_a_group >= cost_.engine().largest_batch ? "engine" : "capacity";
  }
  [[nodiscard]] Estimate largest_interval() const {
    const Estimate needed = with_factors(cost_.memory().ledger(workload_.mean(), 1).needed(), memory_);
    const auto at = [&](double Estimate::* end) {
      return static_cast<double>(largest(needed.*end / needed.value, end));
    };
    Estimate e{at(&Estimate::value), at(&Estimate::high80), at(&Estimate::low80), at(&Estimate::high95),
               at(&Estimate::low95), CostTerm::kMemory};
    const bool time_binds = e.value < static_cast<double>(cost_.memory().largest_batch(workload_.mean()));
    const auto batch = static_cast<std::uint64_t>(std::max(1.0, e.value));
    if (time_binds) e.dominated_by = cost_.predict(workload_.mean(), batch).step.dominated_by;
    return e;
  }

 private:
  // It waits for its own prompt as well, which alone may take as long as its own measured rows are off.
  [[nodiscard]] Estimate queued_first_token(const Estimate& served, std::uint64_t clients) const {
    Estimate first = with_factors(served, queued_.at(reach(clients)));
    const Estimate alone = first_token();
    first.high80 = std::max(first.high80, alone.high80);
    first.high95 = std::max(first.high95, alone.high95);
    return first;
  }
  [[nodiscard]] Server server(const ResidencySummary& residency) const {
    return {cost_, residency, residency, {residency.computed_tokens(), output_}};
  }
  [[nodiscard]] Reach reach(std::uint64_t batch) const { return {static_cast<double>(batch), tokens_, devices_}; }

  CostModel cost_;
  const Workload& workload_;
  const Goals& goals_;
  std::uint32_t output_;
  double tokens_, devices_;
  IntervalGroup steps_, first_tokens_, queued_;
  IntervalFactors memory_;
};

// What drafts gain with this batch; `largest`: that fits in memory.
std::optional<DraftGain> gain_of(const WorkloadRequest& request, const Pricing& pricing, const Device& device,
                                 const Workload& workload, std::uint64_t batch, std::uint64_t largest) {
  const CostModel& cost = pricing.cost();
  if (!cost.deployment().speculation || batch == 0) return std::nullopt;
  const CostModel without(request.model, without_drafts(cost.deployment()), device, cost.engine());
  DraftGain gain = draft_gain(cost, without, workload.mean(), batch, largest);
  for (Estimate* e : {&gain.step, &gain.drafting, &gain.token, &gain.token_without}) {
    *e = with_factors(*e, pricing.step_factors(batch));
  }
  return gain;
}

void price_without_drafts(const WorkloadRequest& request, const Deployment& deployment, const Device& device,
                          Plan& plan, const Goals& goals) {
  const Workload& workload = *plan.workload;
  const Pricing pricing(request, without_drafts(deployment), device, workload, goals);
  const std::uint64_t largest = pricing.largest(1, &Estimate::value);
  const std::uint64_t batch = goals.batch.value_or(largest);
  plan.largest_without_drafts = largest;
  if (batch == 0 || batch > largest) return;
  plan.batch_without_drafts = batch;
  const auto clients = static_cast<std::uint32_t>(batch);
  plan.tokens_per_s_without_drafts = goals.under_load ? pricing.load(clients).tokens_per_s.value
                                                      : pricing.predict(workload.mean(), batch).tokens_per_s.value;
}

// The step that 99 % of a sequence's do not exceed, and the slowest.
void price_steps(const Pricing& pricing, const Workload& workload, std::uint64_t batch, Plan& plan) {
  std::vector<Estimate> steps;
  const IntervalFactors factors = pricing.step_factors(batch);
  for (const ResidencySummary& step : workload.steps()) steps.push_back(pricing.cost().predict(step, batch).token());
  std::sort(steps.begin(), steps.end(), [](const Estimate& a, const Estimate& b) { return a.value < b.value; });
  const std::size_t rank = (99 * steps.size() + 99) / 100;  // ⌈0.99 n⌉
  plan.p99_step = with_factors(steps[rank - 1], factors);
  plan.worst_step = with_factors(steps.back(), factors);
}

}  // namespace

void describe_goals(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  add("batch", po::value<std::string>()->default_value("max"),
      "sequences at once; max: the most that fit and meet the goals");
  add("tpot-ms", po::value<std::string>(), "goal: a mean step takes at most so many milliseconds");
  add("ttft-ms", po::value<std::string>(), "goal: one prompt takes at most so many milliseconds");
  add("under-load", po::bool_switch(),
      "times, rates and goals are of clients that ask again once answered: tokens wait for others' prompts, first "
      "tokens in a queue");
}

Goals goals_of(const Arguments& arguments, std::uint32_t output) {
  const auto milliseconds = [&](const char* option) -> std::optional<double> {
    if (!arguments.has(option)) return std::nullopt;
    return number_value(option, arguments.get<std::string>(option), 1e-3, 1e9);
  };
  Goals goals{std::nullopt, milliseconds("tpot-ms"), milliseconds("ttft-ms"), arguments.get<bool>("under-load")};
  if (output < 2) goals.idle_tpot_ms = std::exchange(goals.tpot_ms, std::nullopt);
  const std::string batch = arguments.get<std::string>("batch");
  if (batch != "max") goals.batch = count_value("batch", batch, 1, kMostBatch);
  return goals;
}

std::vector<std::string> goal_notes(const Goals& goals) {
  if (!goals.idle_tpot_ms) return {};
  return {fmt::format("--tpot-ms {:.6g} is of the tokens after the first, of which an answer of one has none: it holds "
                      "nothing back here", *goals.idle_tpot_ms)};
}

Served largest_served(const WorkloadRequest& request, const Deployment& deployment, const Device& device,
                      const Workload& workload, const Goals& goals) {
  const Pricing pricing(request, deployment, device, workload, goals);
  const std::uint64_t largest = pricing.largest(1, &Estimate::value);
  const std::uint64_t asked = goals.batch.value_or(largest);
  const std::uint64_t batch = asked <= largest ? asked : 0;
  std::optional<Estimate> first_token;
  const std::uint64_t in_memory = pricing.cost().memory().largest_batch(workload.mean());
  const std::uint64_t clients = std::min(std::max<std::uint64_t>(asked, 1), in_memory);
  if (clients > 0 && !goals.under_load) {
    first_token = pricing.first_token();
  } else if (clients > 0) {
    first_token = pricing.load(static_cast<std::uint32_t>(clients)).first_token;
  }
  return {batch,
          largest,
          pricing.largest_interval(),
          pricing.limit_of(largest),
          first_token,
          gain_of(request, pricing, device, workload, batch, in_memory)};
}

Plan make_plan(const WorkloadRequest& request, const Deployment& deployment, const Device& device,
               const Workload& workload, const Goals& goals) {
  const Pricing pricing(request, deployment, device, workload, goals);
  const CostModel& cost = pricing.cost();
  const ResidencySummary& mean = workload.mean();
  Plan plan;
  plan.workload = &workload;
  plan.deployment = deployment;
  plan.largest_in_memory = cost.memory().largest_batch(mean);
  plan.largest = pricing.largest(1, &Estimate::value);
  plan.largest_interval = pricing.largest_interval();
  plan.first_token = pricing.first_token();
  plan.batch = goals.batch.value_or(plan.largest);
  const std::uint64_t shown = std::max<std::uint64_t>(plan.batch, 1);
  plan.prediction = pricing.predict(mean, shown);
  plan.drafts = gain_of(request, pricing, device, workload, shown, plan.largest_in_memory);
  if (plan.drafts) price_without_drafts(request, deployment, device, plan, goals);
  plan.step_factors = pricing.step_factors(shown);
  plan.first_token_factors = pricing.first_token_factors();
  plan.memory_factors = pricing.memory_factors();
  plan.ledger = cost.memory().ledger(mean, shown);
  price_steps(pricing, workload, shown, plan);
  plan.under_load = goals.under_load;
  if (shown <= plan.largest_in_memory) plan.load = pricing.load(static_cast<std::uint32_t>(shown));
  const Times times = pricing.times(shown);
  const bool first_token_late = !goals.first_token_in_time(times.first_token.value);
  plan.in_time = goals.met(times, &Estimate::value);
  plan.prediction.fits = plan.prediction.fits && pricing.takes(shown);
  if (!plan.prediction.fits) {
    plan.limited_by = pricing.limit_of(plan.largest_in_memory);
  } else if (goals.batch && !plan.in_time) {
    plan.limited_by = first_token_late ? "ttft" : "tpot";
  } else {
    plan.limited_by = pricing.limit_of(plan.largest);
  }
  // Not beyond the model's positions, unless the question is.
  const bool beyond = request.prompt + request.output > request.model.max_positions;
  plan.longest_prompt = static_cast<std::uint32_t>(
      largest_that(1, beyond ? kMostPrompt : request.model.max_positions - request.output,
                   [&](std::uint64_t prompt) { return pricing.met(static_cast<std::uint32_t>(prompt), shown); }));
  return plan;
}

std::vector<Plan> search_plans(const WorkloadRequest& request, const Device& device,
                               const std::vector<Workload>& workloads, const Goals& goals) {
  std::vector<Plan> plans;
  for (const Workload& w : workloads) {
    for (const Deployment& d : request.deployments) plans.push_back(make_plan(request, d, device, w, goals));
  }
  return plans;
}

std::size_t best_plan(const std::vector<Plan>& plans) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < plans.size(); ++i) {
    const Plan& a = plans[i];
    const Plan& b = plans[best];
    const bool faster = a.tokens_per_s_a_device() > b.tokens_per_s_a_device() * (1 + 1e-9);
    const bool equal = !faster && a.tokens_per_s_a_device() > b.tokens_per_s_a_device() * (1 - 1e-9);
    if (a.met() && (!b.met() || faster || (equal && a.devices() < b.devices()))) best = i;
  }
  return best;
}

std::vector<Remedy> remedies(const WorkloadRequest& request, const Plan& plan, const Device& device,
                             const Goals& goals) {
  const auto met = [&](const Deployment& d) -> std::uint64_t {
    if (!deployment_problem(request.model, d).empty()) return 0;
    const std::uint64_t batch = Pricing(request, d, device, *plan.workload, goals).largest(1, &Estimate::value);
    return goals.batch && batch < *goals.batch ? 0 : batch;
  };
  std::vector<Remedy> found;
  const auto with_weights = [&](std::string_view name) {
    Deployment smaller = plan.deployment;
    smaller.weights = *parse_weight_format(name);
    if (smaller.weights.layer_bits >= plan.deployment.weights.layer_bits &&
        smaller.weights.expert_bits >= plan.deployment.weights.expert_bits) {
      return false;
    }
    const std::uint64_t batch = met(smaller);
    if (batch > 0) found.push_back({fmt::format("--dtype {}", name), batch});
    return batch > 0;
  };
  // As the checkpoint is stored comes first: it costs nothing.
  const bool packed = !request.stored_format.empty() && !request.keeps_stored && with_weights(request.stored_format);
  // More devices that share each layer, or more stages where none of those help; a CPU is not one of several.
  for (std::uint32_t Deployment::* more : {&Deployment::tensor_parallel, &Deployment::stages}) {
    if (device.kind == DeviceKind::kCpu) break;
    Deployment wider = plan.deployment;
    std::uint64_t batch = 0;
    while (batch == 0 && wider.*more < 64) {
      wider.*more *= 2;
      batch = met(wider);
    }
    if (batch == 0) continue;
    found.push_back({layout_options(wider), batch});
    break;
  }
  const PolicySpec& policy = plan.workload->policy();
  for (const KvType& type : smaller_cache_types(request)) {
    Deployment smaller = plan.deployment;
    smaller.types.kv = type;
    if (policy.kv || type.bits() >= plan.deployment.types.kv.bits() || !kv_problem(policy, type).empty()) continue;
    if (const std::uint64_t batch = met(smaller)) {
      found.push_back({fmt::format("--kv {}", name_of(type)), batch});
      break;
    }
  }
  if (!packed && !with_weights("fp8")) with_weights("int4");
  return found;
}

}  // namespace kvroof
