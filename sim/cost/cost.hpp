// Traffic on a device, as time with an interval; what limits it. Formulas: docs/method.md.
//
//   placement.hpp       what one device holds of a model under an engine and a deployment
//   linear_costs.hpp    products with weights and the kernels between them      launches.hpp   how many kernels
//   attention_costs.hpp attention; index_costs.hpp, state_costs.hpp             policy_costs.hpp   a policy's kernels
//   link_costs.hpp      what devices exchange                                   host_costs.hpp     what the host does
//   components.hpp      how these add up to a pass
//   parts.hpp           the sum of all these, as an estimate                    datasheet_limit.hpp   no time is below
//   memory_model.hpp    the ledger of a batch, and the largest batch
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>

#include "sim/core/units.hpp"
#include "sim/cost/deployment.hpp"
#include "sim/cost/engine_profile.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/cost/memory_model.hpp"
#include "sim/device/device.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

struct Prediction {
  std::uint64_t batch = 0;
  bool fits = false;      // when false the times are what they would be with enough memory
  Estimate step;          // seconds of a mean decode step, with its drafts where there are some
  double tokens_a_step = 1;  // that a sequence is longer by after it, on average
  Estimate tokens_per_s;  // of the whole batch
  std::array<Seconds, kCostTerms> terms{};
  Limit limited_by = Limit::kWeights;  // what takes most of the step; capacity when the batch does not fit
  Seconds limited_for;                 // what takes most takes so much of the step
  StepTraffic traffic;                 // of a mean decode pass; of one group that attends to sequences of its own
  Bytes kv_resident;                   // of the batch, mean over decode steps

  // Seconds for a token of each sequence.
  [[nodiscard]] Estimate token() const { return scaled(step, 1 / tokens_a_step); }
  // Whether a token that takes so many seconds waits longer for prompts of others than for what takes most of a step.
  [[nodiscard]] bool waits_most(double seconds) const {
    return seconds * tokens_a_step - step.value > limited_for.value;
  }
};

// One model on one device, or on several alike, under one engine. Copies share what they hold, which never changes.
// predict() and a ledger take about a microsecond and, but for caches by age, allocate nothing.
class CostModel {
 public:
  // The device must have its achieved fields (find_device fills them). The deployment has no problem.
  CostModel(const ModelShape& shape, const Deployment& deployment, const Device& device, const EngineProfile& engine);

  // A decode step of all sequences, which pass through stages in groups where the engine has these work at once, and
  // the tokens a second of all of them.
  [[nodiscard]] Prediction predict(const ResidencySummary& residency, std::uint64_t batch) const;
  // Seconds of a decode step's pass through all layers.
  [[nodiscard]] Estimate step(const ResidencySummary& residency, const Pass& pass) const;
  // Seconds that the prompts of a pass take together, up to their first tokens.
  [[nodiscard]] Estimate prefill(const ResidencySummary& residency, const Pass& pass) const;
  // Seconds of a pass that makes tokens of answers and computes prompts, or parts of them, beside these: weights are
  // read once and kernels start once. Nothing else is beside them.
  [[nodiscard]] Estimate mixed(const ResidencySummary& answers, const Pass& pass, const ResidencySummary& prompts,
                               const Pass& prompt_pass) const;
  // Those of so many sequences, shared out evenly over groups of devices that attend to sequences of their own.
  [[nodiscard]] Estimate step(const ResidencySummary& residency, std::uint64_t sequences) const {
    return step(residency, deployment().pass_of(sequences));
  }
  [[nodiscard]] Estimate prefill(const ResidencySummary& residency, std::uint64_t sequences) const {
    return prefill(residency, deployment().pass_of(sequences));
  }
  // How many of `running` sequences pass through the stages together.
  [[nodiscard]] std::uint64_t in_a_pass(std::uint64_t running) const {
    const std::uint64_t groups = engine().overlaps_stages ? deployment().stages : 1;
    return (running + groups - 1) / groups;
  }
  // Tokens that a sequence is longer by after a step, on average: 1 where none are drafted.
  [[nodiscard]] double tokens_a_step() const { return deployment().step_tokens().kept; }
  // Steps in which an answer makes so many tokens, on average.
  [[nodiscard]] double steps_of(double tokens) const {
    const auto& drafts = deployment().speculation;
    return drafts ? drafts->steps_of(static_cast<std::uint64_t>(std::llround(tokens))) : tokens;
  }
  // Seconds of a mean step that go to drafts.
  [[nodiscard]] Estimate drafting(const ResidencySummary& residency, std::uint64_t batch) const;

  // By themselves: a mean decode step of one layer, without host and head, as a profile of a layer shows it; one
  // matrix product y[m, n] = x[m, k] · w[k, n]; decode attention over `kv_bytes` of cache, those of so many KV heads of
  // sequences; an update of states of so many bytes, which are read and written; a norm, an activation or a rotation of
  // so many elements.
  [[nodiscard]] Estimate layer(const ResidencySummary& residency, std::uint64_t batch) const;
  [[nodiscard]] Estimate product(std::uint64_t m, std::uint64_t n, std::uint64_t k) const;
  [[nodiscard]] Estimate attention_call(Bytes kv_bytes, double heads) const;
  [[nodiscard]] Estimate state_call(Bytes states) const;
  [[nodiscard]] Estimate elementwise_call(std::uint64_t elements) const;

  [[nodiscard]] const MemoryModel& memory() const;
  [[nodiscard]] const ModelShape& shape() const;
  [[nodiscard]] const TrafficTypes& types() const { return deployment().types; }
  [[nodiscard]] const Deployment& deployment() const;
  [[nodiscard]] const EngineProfile& engine() const;

 private:
  struct Components;  // components.hpp
  std::shared_ptr<const Components> of_;
};

}  // namespace kvroof
