#include "sim/cost/cost.hpp"

#include <algorithm>
#include <utility>

#include "sim/cost/attention_costs.hpp"
#include "sim/cost/datasheet_limit.hpp"
#include "sim/cost/draft_residency.hpp"
#include "sim/cost/host_costs.hpp"
#include "sim/cost/linear_costs.hpp"
#include "sim/cost/link_costs.hpp"
#include "sim/cost/policy_costs.hpp"

namespace kvroof {
namespace {

// Of a step that verifies drafts, what no measured row shows: what hosts do between drafts and verification, kernels of
// a few queries. A judgement; published steps of July 2025 took 5 to 55 % longer than predicted (docs/method.md).
constexpr double kVerifySpread = 0.30;

bool drafts_with_a_model(const Deployment& deployment) {
  return deployment.speculation && deployment.speculation->draft.shape;
}

}  // namespace

// They refer to each other, so that they stay where they were made.
struct CostModel::Components {
  Components(Placement placement, const Device& device)
      : placed(std::move(placement)),
        rates(placed, device),
        linear(placed, rates, device),
        attention(placed, rates, device),
        policy(placed, rates, device),
        links(placed, device),
        host(placed),
        limit(placed, device),
        draft(drafts_with_a_model(placed.deployment)
                  ? std::make_unique<const Components>(placed.of_draft(device), device)
                  : nullptr),
        memory(placed, draft ? &draft->memory : nullptr) {}
  Components(const Components&) = delete;

  // `traffic`: that of the pass.
  [[nodiscard]] Parts pass_parts(const ResidencySummary& residency, const StepTraffic& traffic, const Pass& pass,
                                 StepTokens tokens) const;
  // A pass of the target with what it verifies, and with the drafts before it.
  [[nodiscard]] Parts step_parts(const ResidencySummary& residency, const StepTraffic& traffic, const Pass& pass) const;
  [[nodiscard]] Parts draft_parts(const ResidencySummary& residency, const Pass& pass) const;
  [[nodiscard]] Parts prompt_parts(const ResidencySummary& residency, const Pass& pass) const;
  [[nodiscard]] Parts nothing() const {
    Parts parts;
    parts.together = rates.together;
    return parts;
  }
  // Bytes of caches that a step reads on this device.
  [[nodiscard]] double kv_read(const ResidencySummary& residency, const StepTraffic& traffic) const {
    return placed.kv_share_of(residency.storage_heads) * static_cast<double>(traffic.bytes[Cause::kKvRead]);
  }
  [[nodiscard]] KernelRates::Reading reading(const LinearWork& work, double kv_bytes) const {
    const double weights = attention_only(placed.shape) ? 0 : placed.share * work.bytes;
    return rates.of_working_set(weights + kv_bytes);
  }
  [[nodiscard]] StepTraffic decode_traffic(const ResidencySummary& residency, std::uint64_t sequences,
                                           StepTokens tokens) const {
    return mean_decode_traffic(placed.shape, placed.types(), residency, sequences, tokens);
  }

  Placement placed;
  KernelRates rates;
  LinearCosts linear;
  AttentionCosts attention;
  PolicyCosts policy;
  LinkCosts links;
  HostCosts host;
  DatasheetLimit limit;
  std::unique_ptr<const Components> draft;  // of what drafts tokens; nothing: drafts are free, or there are none
  MemoryModel memory;
};

Parts CostModel::Components::pass_parts(const ResidencySummary& residency, const StepTraffic& traffic,
                                        const Pass& pass, StepTokens tokens) const {
  const bool whole_model = !attention_only(placed.shape);
  const std::uint64_t passed = pass.sequences * tokens.passed;
  const LinearWork work = linear.work_of(traffic, passed, pass.fill);
  const double kv_bytes = kv_read(residency, traffic);
  const KernelRates::Reading read = reading(work, kv_bytes);
  Parts parts = nothing();
  if (whole_model) {
    const std::uint64_t computed = placed.engine.padded(pass.sequences, tokens.passed);
    linear.add_step(parts, work, computed, read.linear);
    links.add(parts, computed);
  }
  attention.add_step(parts, residency, traffic, pass.sequences, passed, read.attention);
  // Written by attention and read by the policy.
  const double observed = residency.needs_probabilities ? 2 * attention.probability_bytes(residency, passed) : 0;
  policy.add_step(parts, residency, traffic, observed);
  if (whole_model) host.add_step(parts, pass.sequences, tokens, pass.beside);
  parts.least = limit.seconds_of(work, traffic[KernelFamily::kAttention].value,
                                 static_cast<double>(traffic.state_bytes), kv_bytes);
  return parts;
}

// A token after another. A layer of the target first passes all tokens that the step before verified: what it had of
// them came from hidden states that it had guessed.
Parts CostModel::Components::draft_parts(const ResidencySummary& residency, const Pass& pass) const {
  Parts parts = nothing();
  if (!draft) return parts;
  const Speculation& speculation = *placed.deployment.speculation;
  const ResidencySummary r = draft_residency(draft->placed.shape, residency);
  const auto of = [&](StepTokens tokens) {
    return draft->pass_parts(r, draft->decode_traffic(r, pass.sequences, tokens), {pass.sequences, pass.fill}, tokens);
  };
  parts.add_times(1, of(speculation.draft.of_target ? StepTokens{speculation.tokens + 1, 1} : StepTokens{}));
  if (speculation.tokens > 1) parts.add_times(speculation.tokens - 1, of({}));
  return parts;
}

Parts CostModel::Components::step_parts(const ResidencySummary& residency, const StepTraffic& traffic,
                                        const Pass& pass) const {
  const auto& speculation = placed.deployment.speculation;
  if (!speculation) return pass_parts(residency, traffic, pass, {});
  const StepTokens tokens = speculation->step_tokens();
  const Parts drafted = draft_parts(residency, pass);
  // While drafts are computed the host may work ahead, as far as it does not launch them.
  const std::uint32_t passed = speculation->draft.of_target ? tokens.passed : 1;
  const double launching = draft ? speculation->tokens * draft->host.step_launches(pass.sequences, passed) : 0;
  const double ahead = std::max(0.0, drafted.total() - launching);
  Parts parts = pass_parts(residency, traffic, {pass.sequences, pass.fill, pass.beside + ahead}, tokens);
  parts.add_times(1, drafted);
  parts.width_squared[static_cast<std::size_t>(CostTerm::kHost)] += square(kVerifySpread * parts.total());
  return parts;
}

// Prompts are bound by arithmetic; short ones by the weights, which are read once for all of them, and by the rows of
// the tokens before them.
Parts CostModel::Components::prompt_parts(const ResidencySummary& residency, const Pass& pass) const {
  const bool whole_model = !attention_only(placed.shape);
  const std::uint64_t tokens = pass.sequences * residency.computed_tokens();
  const StepTraffic traffic = step_traffic(
      placed.shape, placed.types(),
      prompt_work(pass.sequences, tokens, residency.storage_heads, pass.sequences * residency.computed_prefill()));
  const LinearWork work = linear.work_of(traffic, tokens, pass.fill);
  Parts parts = nothing();
  if (whole_model) {
    linear.add_prompts(parts, work);
    links.add(parts, tokens);
  }
  attention.add_prompts(parts, residency, traffic, pass.sequences);
  policy.add_prompts(parts, residency, traffic);
  if (whole_model) host.add_prompts(parts, pass.sequences, pass.beside);
  // Blocks of queries share the rows that they read, by the shorter of both ways.
  const double shorter = std::min(1.0, attention.heads_beside_latent());
  parts.least = limit.seconds_of(work, shorter * traffic[KernelFamily::kAttention].value, 0,
                                 static_cast<double>(pass.sequences) * attention.earlier_bytes(residency));
  if (draft) {
    // The host launches what drafts while the device still computes, once it has launched the target's kernels.
    const double ahead = std::max(0.0, parts.total() - host.prompt_launches());
    const ResidencySummary r = draft_residency(draft->placed.shape, residency);
    parts.add_times(1, draft->prompt_parts(r, {pass.sequences, pass.fill, ahead}));
  }
  return parts;
}

CostModel::CostModel(const ModelShape& shape, const Deployment& deployment, const Device& device,
                     const EngineProfile& engine)
    : of_(std::make_shared<const Components>(Placement(shape, deployment, device, engine), device)) {}

const MemoryModel& CostModel::memory() const { return of_->memory; }
const ModelShape& CostModel::shape() const { return of_->placed.shape; }
const Deployment& CostModel::deployment() const { return of_->placed.deployment; }
const EngineProfile& CostModel::engine() const { return of_->placed.engine; }

Prediction CostModel::predict(const ResidencySummary& residency, std::uint64_t batch) const {
  const Pass pass = deployment().pass_of(in_a_pass(batch));
  const auto sequences = static_cast<double>(batch);
  Prediction p;
  p.batch = batch;
  p.fits = memory().ledger(residency, batch).fits();
  p.traffic = of_->decode_traffic(residency, pass.sequences, deployment().step_tokens());
  p.kv_resident = Bytes(nearest(residency.resident_bytes(shape(), types().kv) * sequences));
  const Parts parts = of_->step_parts(residency, p.traffic, pass);
  for (std::size_t i = 0; i < kCostTerms; ++i) p.terms[i] = Seconds(parts.seconds[i]);
  p.step = parts.estimate();
  p.tokens_a_step = tokens_a_step();
  p.tokens_per_s = throughput(p.step, sequences * p.tokens_a_step);
  const auto largest = std::max_element(parts.limits.begin(), parts.limits.end());
  p.limited_by = p.fits ? static_cast<Limit>(largest - parts.limits.begin()) : Limit::kCapacity;
  return p;
}

Estimate CostModel::step(const ResidencySummary& residency, const Pass& pass) const {
  const StepTraffic traffic = of_->decode_traffic(residency, pass.sequences, deployment().step_tokens());
  return of_->step_parts(residency, traffic, pass).estimate();
}

Estimate CostModel::prefill(const ResidencySummary& residency, const Pass& pass) const {
  return of_->prompt_parts(residency, pass).estimate();
}

Estimate CostModel::drafting(const ResidencySummary& residency, std::uint64_t batch) const {
  return of_->draft_parts(residency, deployment().pass_of(batch)).estimate();
}

Estimate CostModel::layer(const ResidencySummary& residency, std::uint64_t batch) const {
  const Pass pass = deployment().pass_of(batch);
  const StepTraffic traffic = of_->decode_traffic(residency, pass.sequences, {});
  Parts parts = of_->pass_parts(residency, traffic, pass, {});
  // The head is the one product that is of no layer.
  const LinearWork work = of_->linear.work_of(traffic, pass.sequences, pass.fill);
  const Rate reading = of_->reading(work, of_->kv_read(residency, traffic)).linear;
  Parts head;
  of_->linear.add_head(head, engine().padded(pass.sequences, 1), reading);
  constexpr auto kLinear = static_cast<std::size_t>(CostTerm::kLinear);
  constexpr auto kHost = static_cast<std::size_t>(CostTerm::kHost);
  parts.seconds[kLinear] -= head.seconds[kLinear];
  parts.seconds[kHost] = parts.width_squared[kHost] = parts.least = 0;
  for (std::size_t i = 0; i < kCostTerms; ++i) {
    parts.seconds[i] /= shape().depth();
    parts.width_squared[i] /= square(shape().depth());
  }
  return parts.estimate();
}

Estimate CostModel::product(std::uint64_t m, std::uint64_t n, std::uint64_t k) const {
  Parts parts = of_->linear.product(m, n, k);
  parts.least = of_->limit.seconds_of_call(static_cast<double>(n * k) * deployment().weights.layer_bits / 8);
  return parts.estimate();
}

Estimate CostModel::attention_call(Bytes kv_bytes, double heads) const {
  const auto bytes = static_cast<double>(kv_bytes.value);
  Parts parts = of_->attention.call(bytes, heads);
  parts.least = of_->limit.seconds_of_call(bytes);
  return parts.estimate();
}

Estimate CostModel::state_call(Bytes states) const {
  const double bytes = 2 * static_cast<double>(states.value);  // read and written
  Parts parts = of_->attention.states().call(bytes);
  parts.least = of_->limit.seconds_of_call(bytes);
  return parts.estimate();
}

Estimate CostModel::elementwise_call(std::uint64_t elements) const {
  return of_->linear.elementwise_call(elements).estimate();
}

}  // namespace kvroof
