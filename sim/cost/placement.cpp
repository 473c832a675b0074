#include "sim/cost/placement.hpp"

#include <algorithm>
#include <cmath>

#include "sim/cost/held_rows.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Of a cache, on the device that has most of its heads.
double share_of_heads(std::uint32_t kv_heads, std::uint32_t devices) {
  kv_heads = std::max(kv_heads, 1U);
  return (kv_heads + devices - 1) / devices / static_cast<double>(kv_heads);
}

// In the format of the weights where engine and device have such products, else in 16 bits after unpacking.
FormatOnBoard format_on(const WeightFormat& format, const EngineProfile& engine, const Device& device) {
  const auto has = [&](const std::optional<DeviceField>& rate) { return rate && device.fact(*rate); };
  FormatOnBoard on;
  on.own = engine.quantises_activations && has(format.peak);
  on.as_stored = on.own || has(format.native);
  // Of a mixture, boards may have products of what all else is stored in, but none of the experts'.
  on.experts_as_stored = on.own && format.native ? has(format.native) : on.as_stored;
  return on;
}

// Bytes of weights on the stage that has most of them, of `all`: layers are shared out whole, the first stage has the
// embedding and the last one the head. Where layers do not divide evenly some stages have one more: under engines with
// short ends others than these two, as long as there are others.
double fullest_stage(const Placement& p, double all) {
  const std::uint32_t stages = p.deployment.stages;
  if (stages == 1) return all;
  const WeightFormat& format = p.deployment.weights;
  const double head = format.head_bits / 8 * static_cast<double>(head_parameters(p.shape));
  const double embedding = (p.shape.tied_head ? format.head_bits : format.embedding_bits) / 8 *
                           static_cast<double>(embedding_parameters(p.shape));
  const bool one_for_both = p.shape.tied_head && !p.engine.unties_head;
  const double layers = all - embedding - (one_for_both ? 0 : head), end = std::max(embedding, head);
  const std::uint32_t all_layers = p.shape.mixers();
  const double least = all_layers / stages, most = (all_layers - 1) / stages + 1;
  const std::uint32_t longer = all_layers % stages;
  const bool end_is_longer = longer > 0 && (!p.engine.short_ends || longer + 2 > stages);
  return std::max(layers * most / all_layers + (end_is_longer ? end : 0), layers * least / all_layers + end);
}

// Of the routed experts, what other groups of devices hold.
double held_elsewhere(const ModelShape& shape, const Deployment& deployment) {
  return (1 - 1.0 / deployment.data_parallel) * deployment.weights.expert_bits / 8 *
         static_cast<double>(routed_parameters(shape));
}

Bytes weights_of_a_device(const Placement& p) {
  if (attention_only(p.shape)) return {};
  const double second_head = p.engine.unties_head && p.shape.tied_head ? p.deployment.weights.head_bits / 8 : 0;
  const u64 all = weight_bytes(p.shape, p.deployment.weights).value +
                  static_cast<u64>(second_head * static_cast<double>(head_parameters(p.shape)));
  const double own = fullest_stage(p, static_cast<double>(all) - held_elsewhere(p.shape, p.deployment));
  return Bytes(static_cast<u64>(std::ceil(p.share * own)));
}

// The scheduler prepares a step, tells processes of it and reads its tokens once, whatever the step drafts; drafts are
// the most probable tokens.
EngineProfile without_scheduler(EngineProfile engine) {
  engine.step_us = engine.shared_step_us = engine.request_us = engine.hidden_request_us = 0;
  return engine;
}

}  // namespace

Placement::Placement(const ModelShape& model, const Deployment& layout, const Device& device,
                     const EngineProfile& profile)
    : shape(model),
      deployment(layout),
      engine(profile),
      share(1.0 / layout.tensor_parallel),
      capacity(device.usable_memory()) {
  check(deployment_problem(model, layout).empty(), "a deployment of a cost model is possible");
  if (engine.float32_states) shape.state.type = DType::kF32;
  if (engine.float32_state_rows) shape.state.row_type = DType::kF32;
  deployment.weights = format_in(model, layout.weights, engine.beside_experts_bits);
  format = format_on(deployment.weights, engine, device);
  weights = weights_of_a_device(*this);
  // The layers that hold rows come first.
  const double of_stage = std::ceil(shape.layers / static_cast<double>(deployment.stages));
  stage_share = std::min(1.0, of_stage / (shape.layers - shape.sharing_layers));
  kv_share = share_of_heads(shape.kv_heads, deployment.tensor_parallel);
  other_kv_share = share_of_heads(shape.other.kv_heads, deployment.tensor_parallel);
}

double Placement::kv_share_of(std::uint32_t storage_heads, double others) const {
  if (storage_heads > shape.kv_heads) return share_of_heads(storage_heads, deployment.tensor_parallel);
  return kv_share + others * (other_kv_share - kv_share);
}

double Placement::kv_share_of(const ResidencySummary& residency, const LayerCounts& attended) const {
  const auto all = static_cast<double>(attended.attended), others = static_cast<double>(attended.attended_other);
  return kv_share_of(residency.storage_heads, all > 0 ? others / all : 0);
}

double Placement::others_of_token() const {
  double others = 0;
  for (const std::uint32_t layer : shape.other.layers) {
    if (shape.has_own_rows(layer)) others += shape.rows_of_token(layer);
  }
  return others > 0 ? others / static_cast<double>(rows_of_token(shape)) : 0;
}

// The tokens that a head holds are as many as the rows fill where no window is full; each window that they fill leaves
// more for the other layers.
double Placement::others_of(double rows) const {
  if (shape.other.layers.empty() || kv_share == other_kv_share) return 0;
  double tokens = 0, next = rows / static_cast<double>(rows_of_token(shape)), others = 0, all = 0;
  while (next > tokens) {
    tokens = next;
    double growing = 0, full = 0;
    others = 0;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      if (!shape.has_own_rows(layer)) continue;
      const double held = rows_seen(shape, layer, tokens);
      (held < shape.rows_of_token(layer) * tokens ? full : growing) += held;
      if (shape.is_other(layer)) others += held;
    }
    all = full + growing;
    next = growing > 0 ? (rows - full) * tokens / growing : tokens;
    if (next < tokens * (1 + 1e-9)) break;
  }
  return all > 0 ? others / all : 0;
}

Placement Placement::of_draft(const Device& device) const {
  const Draft& draft = deployment.speculation->draft;
  Placement placed(*draft.shape, draft_deployment(deployment), device, without_scheduler(engine));
  if (!draft.of_target) return placed;
  // Without the embedding, and without the head that is the target's.
  ModelShape own = *draft.shape;
  own.vocab = 0;
  own.tied_head = true;
  const WeightFormat& stored = placed.deployment.weights;
  const double head = draft.own_head ? stored.head_bits / 8 * static_cast<double>(head_parameters(*draft.shape)) : 0;
  const u64 all =
      weight_bytes(own, stored).value + nearest(head) - nearest(held_elsewhere(own, placed.deployment));
  placed.weights = Bytes((all + deployment.tensor_parallel - 1) / deployment.tensor_parallel);
  return placed;
}

}  // namespace kvroof
