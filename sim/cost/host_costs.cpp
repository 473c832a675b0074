#include "sim/cost/host_costs.hpp"

#include <algorithm>

namespace kvroof {
namespace {

constexpr double kHostSpread = 0.30;  // a prior (docs/method.md)

}  // namespace

HostCosts::HostCosts(const Placement& placed) : placed_(placed) {
  const MoreLaunches more = more_launches(placed);
  const double layers = placed.shape.depth();
  kernels_ = layers * (placed.engine.kernels_per_layer + (placed.deployment.devices_of_a_layer() > 1 ? 2 : 0) +
                       (more.products + more.others) / layers);
}

HostCosts::Launching HostCosts::of_step(std::uint64_t sequences, std::uint64_t tokens) const {
  return {placed_.engine.replays(sequences, tokens, placed_.deployment.stages), placed_.engine.launch_us};
}

// An engine whose graphs are of decode steps alone may take longer for a launch of a prompt, shaped anew each time.
HostCosts::Launching HostCosts::of_prompts() const {
  const EngineProfile& engine = placed_.engine;
  return engine.prompt_launch_us > 0 ? Launching{false, engine.prompt_launch_us}
                                     : Launching{engine.has_graphs(placed_.deployment.stages), engine.launch_us};
}

double HostCosts::step_launches(std::uint64_t sequences, std::uint64_t tokens) const {
  const Launching launching = of_step(sequences, tokens);
  return launching.replayed ? 0 : seconds_of_kernels(launching.launch_us);
}

double HostCosts::prompt_launches() const {
  const Launching launching = of_prompts();
  return launching.replayed ? 0 : seconds_of_kernels(launching.launch_us);
}

void HostCosts::add_step(Parts& parts, std::uint64_t sequences, StepTokens tokens, double beside) const {
  add(parts, sequences, sequences * tokens.passed, of_step(sequences, tokens.passed), beside);
}

void HostCosts::add_prompts(Parts& parts, std::uint64_t sequences, double beside) const {
  add(parts, sequences, sequences, of_prompts(), beside);
}

void HostCosts::add_mixed(Parts& parts, std::uint64_t answers, StepTokens tokens, std::uint64_t prompts,
                          double beside) const {
  add(parts, answers + prompts, answers * tokens.passed + prompts, of_prompts(), beside);
}

// The device waits for the host where launching (without a graph) and what the host does for each sequence while the
// device computes take longer than computing, of the step and of the prompts that share its iteration. Without a graph
// it idles longer between kernels also where they do not.
void HostCosts::add(Parts& parts, std::uint64_t sequences, std::uint64_t sampled, Launching launching,
                    double beside) const {
  const EngineProfile& engine = placed_.engine;
  const Deployment& deployment = placed_.deployment;
  const double launches = launching.replayed ? 0 : seconds_of_kernels(launching.launch_us);
  const double hidden = launches + engine.hidden_request_us * 1e-6 * static_cast<double>(sequences);
  const double idle = std::max(0.0, hidden - parts.total() - beside);
  const double gaps = seconds_of_kernels(engine.gap_us + (launching.replayed ? 0 : engine.launch_gap_us));
  const double telling = deployment.devices_of_a_layer() > 1 ? engine.shared_step_us : 0;
  const double logit_ns = engine.logits_ns + (deployment.top_p ? engine.top_p_ns : 0);
  const double step = engine.step_us + telling + engine.request_us * static_cast<double>(sequences) +
                      logit_ns * 1e-3 * placed_.shape.vocab * static_cast<double>(sampled);
  parts.add(CostTerm::kHost, Limit::kLaunches, idle + gaps + step * 1e-6, kHostSpread);
}

}  // namespace kvroof
