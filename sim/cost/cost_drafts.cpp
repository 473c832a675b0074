// What drafted tokens cost (sim/cost/speculation.hpp): steps of what drafts them, its prompts, its memory.
#include <algorithm>

#include "sim/cost/cost_parts.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Of a step that verifies drafts, what no measured row shows: what hosts do between drafts and verification, kernels of
// a few queries. A judgement; published steps of July 2025 took 5 to 55 % longer than predicted (docs/method.md).
constexpr double kVerifySpread = 0.30;

// Rows that full attention sees of a sequence of so many tokens, over all layers and heads; those that are held, or
// also those that layers read of others.
double rows_seen(const ModelShape& s, double tokens, bool held) {
  double rows = 0;
  for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
    if (held && !s.has_own_rows(layer)) continue;
    rows += s.rows_of_token(layer) * (s.window(layer) > 0 ? std::min<double>(tokens, s.window(layer)) : tokens);
  }
  return rows;
}

// The scheduler prepares a step, tells processes of it and reads its tokens once, whatever the step drafts; drafts are
// the most probable tokens.
EngineProfile without_scheduler(EngineProfile engine) {
  engine.step_us = engine.shared_step_us = engine.request_us = engine.hidden_request_us = 0;
  return engine;
}

// Of causal attention over so many tokens of a prompt. Where an index chooses, layers are alike, of latent attention.
LayerCounts prompt_counts(const ModelShape& s, std::uint32_t prompt) {
  LayerCounts counts;
  for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
    const u64 rows = s.rows_of_token(layer) * prefill_rows_read(prompt, 1, s.window(layer));
    counts.attended += rows;
    if (s.is_other(layer)) counts.attended_other += rows;
  }
  counts.written = rows_of_token(s) * prompt;
  if (s.index) {
    counts.indexed = counts.attended;
    counts.attended = std::min(counts.attended, s.layers * prefill_rows_read(prompt, 1, s.index.tokens));
  }
  return counts;
}

}  // namespace

void CostModel::set_draft(const Device& device) {
  if (!deployment_.speculation || !deployment_.speculation->draft.shape) return;
  const Draft& draft = deployment_.speculation->draft;
  const Deployment alone = draft_deployment(deployment_);
  const auto model = std::make_shared<CostModel>(*draft.shape, alone, device, without_scheduler(engine_));
  if (draft.of_target) {
    // Without the embedding, and without the head that is the target's.
    ModelShape own = *draft.shape;
    own.vocab = 0;
    own.tied_head = true;
    const WeightFormat& format = model->deployment_.weights;
    const double head = draft.own_head ? format.head_bits / 8 * static_cast<double>(head_parameters(*draft.shape)) : 0;
    const double shared = format.expert_bits / 8 * static_cast<double>(routed_parameters(own));
    const u64 elsewhere = nearest((1 - 1.0 / model->deployment_.data_parallel) * shared);
    const u64 all = weight_bytes(own, format).value + nearest(head) - elsewhere;
    model->weights_ = Bytes((all + deployment_.tensor_parallel - 1) / deployment_.tensor_parallel);
  }
  draft_ = model;
}

// Full attention at the ages of the target's sequences.
ResidencySummary CostModel::draft_residency(const ResidencySummary& residency) const {
  const ModelShape& s = draft_->shape_;
  ResidencySummary r;
  r.prompt = residency.prompt;
  r.steps = residency.steps;
  r.layers = s.layers;
  r.storage_heads = s.kv_heads;
  r.decode.attended = nearest(rows_seen(s, residency.mean_context(), false));
  r.decode.resident = nearest(rows_seen(s, residency.mean_context(), true));
  r.decode.written = rows_of_token(s);
  r.cached = residency.cached;
  r.prefill = prompt_counts(s, r.prompt);
  if (r.cached > 0) r.cached_prefill = prompt_counts(s, r.cached);
  for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
    if (!s.is_other(layer)) continue;
    const double seen = residency.mean_context();
    r.decode.attended_other +=
        nearest(s.rows_of_token(layer) * (s.window(layer) > 0 ? std::min<double>(seen, s.window(layer)) : seen));
  }
  if (s.index) {
    r.decode.indexed = r.decode.attended;
    r.decode.attended = std::min(r.decode.attended, u64{s.layers} * s.index.tokens);
  }
  return r;
}

// A token after another. A layer of the target first passes all tokens that the step before verified: what it had of
// them came from hidden states that it had guessed.
CostModel::Parts CostModel::draft_parts(const ResidencySummary& residency, std::uint64_t batch, double fill) const {
  Parts parts;
  parts.together = together_;
  if (!draft_) return parts;
  const Speculation& speculation = *deployment_.speculation;
  const ResidencySummary r = draft_residency(residency);
  const auto pass = [&](StepTokens tokens) {
    const StepTraffic traffic = mean_decode_traffic(draft_->shape_, draft_->types_, r, batch, tokens);
    return draft_->parts_of(r, traffic, batch, fill, tokens, 0);
  };
  parts.add_times(1, pass(speculation.draft.of_target ? StepTokens{speculation.tokens + 1, 1} : StepTokens{}));
  if (speculation.tokens > 1) parts.add_times(speculation.tokens - 1, pass({}));
  return parts;
}

CostModel::Parts CostModel::step_parts(const ResidencySummary& residency, const StepTraffic& traffic,
                                       std::uint64_t batch, double fill, double beside) const {
  if (!deployment_.speculation) return parts_of(residency, traffic, batch, fill, {}, beside);
  const Parts drafts = draft_parts(residency, batch, fill);
  // While drafts are computed the host may work ahead, as far as it does not launch them.
  const std::uint64_t passed = deployment_.speculation->draft.of_target ? step_tokens().passed : 1;
  const bool launched = draft_ && !engine_.replays(batch, passed);
  const double launching = launched ? deployment_.speculation->tokens * draft_->launch_seconds(engine_.launch_us) : 0;
  const double ahead = std::max(0.0, drafts.total() - launching);
  Parts parts = parts_of(residency, traffic, batch, fill, step_tokens(), beside + ahead);
  parts.add_times(1, drafts);
  parts.width_squared[static_cast<std::size_t>(CostTerm::kHost)] += square(kVerifySpread * parts.total());
  return parts;
}

Estimate CostModel::drafting(const ResidencySummary& residency, std::uint64_t batch) const {
  return estimate_of(draft_parts(residency, of_a_group(batch), fill_of(batch)));
}

double CostModel::draft_cache_bytes(double tokens) const {
  if (!draft_) return 0;
  const double row = static_cast<double>(held_bytes(draft_->shape_, draft_->types_.kv, draft_->shape_.layers).total()) /
                     draft_->shape_.layers;
  return draft_->kv_share_ * rows_seen(draft_->shape_, tokens, true) * row;
}

}  // namespace kvroof
