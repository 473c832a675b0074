// kvroof compare: the same work on several devices and under several policies, ranked by speed, price and energy.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "analysis/serving.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/compare/compare_output.hpp"
#include "apps/prediction/asked_devices.hpp"
#include "apps/prediction/cached_prompt.hpp"
#include "apps/prediction/device_prices.hpp"
#include "sim/core/files.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr Measure kMeasures[] = {
    {"tokens_per_s", "", [](const Contender& c) { return c.tokens_per_s(); }},
    {"tokens_per_s_a_sequence", "", [](const Contender& c) { return c.tokens_per_s_a_sequence(); }},
    {"tokens_per_s_a_device", "", [](const Contender& c) { return c.tokens_per_s_a_device(); }},
    {"tokens_per_usd", "a listed price", [](const Contender& c) { return c.tokens_per_usd(); }},
    {"tokens_per_joule", "a known power", [](const Contender& c) { return c.tokens_per_joule(); }},
};

const Measure& measure_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Measure& m : kMeasures) {
    if (m.name == name) return m;
    names.emplace_back(m.name);
  }
  throw usage_error(fmt::format("--by {}: unknown{}", name, did_you_mean(name, names))).note("known: " + join(names));
}

// What ranks where nothing is asked for: servers of several sizes are compared by what each device of them makes, as
// twice as many devices may be two servers.
std::string measure_name(const Arguments& arguments, const WorkloadRequest& request) {
  if (arguments.has("by")) return arguments.get<std::string>("by");
  const auto devices = [](const Deployment& d) { return d.devices(); };
  const auto [least, most] = std::ranges::minmax(request.deployments, {}, devices);
  return devices(least) == devices(most) ? "tokens_per_s" : "tokens_per_s_a_device";
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
                       static_cast<double>(deployment.devices())});
  const Server server(cost, workload.mean(), workload.mean(), {workload.mean().computed_tokens(), request.output});
  const auto rate_at = [&](std::uint64_t batch) {
    if (goals.under_load) return server.closed_loop_rate(static_cast<std::uint32_t>(batch));
    return cost.predict(workload.mean(), batch).tokens_per_s;
  };
  c.prediction = cost.predict(workload.mean(), c.batch);
  c.prompts = cost.prefill(workload.mean(), c.batch);
  const Estimate token =
      goals.under_load ? server.closed_loop(static_cast<std::uint32_t>(c.batch)).token : c.prediction.token();
  c.token = with_factors(token, c.factors);
  c.rate = with_factors(rate_at(c.batch), c.factors);
  c.loaded_rate = server.closed_loop_rate(static_cast<std::uint32_t>(c.batch)).value;
  for (std::uint64_t batch = 1; batch <= c.batch; batch *= 2) {
    const double all = rate_at(batch).value;
    c.batches.emplace_back(all / static_cast<double>(batch), all / c.devices());
  }
  c.batches.emplace_back(c.tokens_per_s_a_sequence(), c.tokens_per_s_a_device());
  return c;
}

// But for what the order of their arithmetic makes of numbers.
bool at_least(double a, double b) { return a >= b * (1 - 1e-9); }

// Marks those of which no other is better in both at every batch, and gives the front from left to right.
std::vector<std::pair<double, double>> mark_front(std::vector<Contender>& contenders) {
  std::vector<std::pair<double, double>> front;
  for (Contender& c : contenders) {
    for (const auto& point : c.batches) {
      const bool beaten = std::any_of(contenders.begin(), contenders.end(), [&](const Contender& other) {
        return std::any_of(other.batches.begin(), other.batches.end(), [&](const auto& rival) {
          const bool as_good = at_least(rival.first, point.first) && at_least(rival.second, point.second);
          return as_good && !(at_least(point.first, rival.first) && at_least(point.second, rival.second));
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

int run_compare(const Arguments& arguments) {
  WorkloadRequest request = workload_request(arguments);
  set_cached_prompt(arguments, request);
  const Measure& by = measure_of(measure_name(arguments, request));
  std::vector<Device> devices = asked_devices(arguments, request);
  set_prices(arguments, devices);
  const std::string svg = svg_file(arguments);
  const std::vector<Workload> workloads = make_workloads(request, arguments);
  const Goals goals = goals_of(arguments, request.output);
  Ranking ranking{request, by, goals, {}, {}};
  for (const Device& device : devices) {
    for (const Deployment& deployment : request.deployments) {
      for (const Workload& w : workloads) ranking.ranked.push_back(contend(request, device, deployment, w, goals));
    }
  }
  // What has no measure, as a device without a price, comes last, and of it what holds nothing after what is slow; of
  // what is as fast the one whose first token comes sooner stands first.
  const auto rank = [&](const Contender& c) {
    return std::tuple(by.of(c), c.tokens_per_s(), c.batch > 0 ? -c.served.first_token->value : 0);
  };
  std::stable_sort(ranking.ranked.begin(), ranking.ranked.end(),
                   [&](const Contender& a, const Contender& b) { return rank(a) > rank(b); });
  ranking.front = mark_front(ranking.ranked);
  if (!svg.empty()) write_text_file(svg, compare_svg(ranking));
  const Format format = format_of(arguments);
  write_result(arguments, format == Format::kJson  ? compare_json(ranking)
                          : format == Format::kCsv ? compare_csv(ranking)
                                                   : compare_table(ranking));
  return static_cast<int>(ranking.ranked.front().batch > 0 ? ExitCode::kOk : ExitCode::kGateFailed);
}

void describe_compare(po::options_description_easy_init add) {
  describe_workload(add);
  describe_cached_prompt(add);
  add("device", po::value<std::string>(), kDevicesHelp);
  describe_prices(add);
  add("by", po::value<std::string>(),
      "what ranks: tokens_per_s | tokens_per_s_a_sequence | tokens_per_s_a_device | tokens_per_usd, at the highest "
      "listed price | tokens_per_joule (default: tokens_per_s, and of several numbers of devices that of each)");
  describe_goals(add);
  add("svg", po::value<std::string>(), "write the picture of all batches and their Pareto front to this file");
}

constexpr std::string_view kCompareExamples =
    "  kvroof compare --model llama-3-8b --device h100-sxm,h200,b200,rtx-5090 --prompt 4k --output 1k\n"
    "  kvroof compare --model llama-3.1-70b --tp 4 --engine vllm --device h100-sxm,h200 --policy full,h2o --budget 0.5 "
    "--kv bf16,fp8 --prompt 3000 --output 400 --batch 32 --under-load\n"
    "  kvroof compare --model mpt-7b --device all --policy full,h2o --budget 0.5 --by tokens_per_usd\n"
    "  kvroof compare --model llama-3-8b --device h200,h200:bandwidth_gb_per_s=1.5x,h200:usable_mib=2x --prompt 8k\n"
    "  kvroof compare --model qwen3-32b --dtype fp8 --engine vllm --device h100-sxm,h200,b200,l40s --tpot-ms 30 "
    "--by tokens_per_usd";

}  // namespace

Command compare_command() {
  return {"compare", "the same work on several devices and policies: tokens/s, $ and J",
          "--model NAME --device NAME,… [options]", kCompareExamples, &describe_compare, &run_compare};
}

}  // namespace kvroof
