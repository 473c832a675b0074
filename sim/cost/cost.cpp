#include "sim/cost/cost.hpp"

#include <algorithm>

#include "sim/cost/components.hpp"

namespace kvroof {

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
  p.limited_for = Seconds(*largest);
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

Estimate CostModel::mixed(const ResidencySummary& answers, const Pass& pass, const ResidencySummary& prompts,
                          const Pass& prompt_pass) const {
  return of_->mixed_parts(answers, pass, prompts, prompt_pass).estimate();
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
  of_->linear.add_head(head, engine().padded(pass.sequences, 1, deployment().stages), reading);
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
