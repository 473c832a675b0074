#include "sim/cost/components.hpp"

#include <algorithm>
#include <utility>

#include "sim/cost/draft_residency.hpp"

namespace kvroof {
namespace {

// Of a step that verifies drafts, what no measured row shows: what hosts do between drafts and verification, kernels of
// a few queries. A judgement; published steps of July 2025 took 5 to 55 % longer than predicted (docs/method.md).
constexpr double kVerifySpread = 0.30;

bool drafts_with_a_model(const Deployment& deployment) {
  return deployment.speculation && deployment.speculation->draft.shape;
}

}  // namespace

CostModel::Components::Components(Placement placement, const Device& device)
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

Parts CostModel::Components::pass_parts(const ResidencySummary& residency, const StepTraffic& traffic,
                                        const Pass& pass, StepTokens tokens) const {
  const bool whole_model = !attention_only(placed.shape);
  const std::uint64_t passed = pass.sequences * tokens.passed;
  const LinearWork work = linear.work_of(traffic, passed, pass.fill);
  const double kv_bytes = kv_read(residency, traffic);
  const KernelRates::Reading read = reading(work, kv_bytes);
  Parts parts = nothing();
  if (whole_model) {
    const std::uint64_t computed = placed.engine.padded(pass.sequences, tokens.passed, placed.deployment.stages);
    linear.add_step(parts, work, computed, read.linear);
    links.add(parts, computed);
  }
  attention.add_step(parts, residency, traffic, pass.sequences, passed, read.attention);
  policy.add_step(parts, residency, traffic, observed_bytes(residency, passed));
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
  const StepTokens tokens = placed.deployment.step_tokens();
  return with_drafts(residency, pass, [&](double ahead) {
    return pass_parts(residency, traffic, {pass.sequences, pass.fill, pass.beside + ahead}, tokens);
  });
}

// While drafts are computed the host may work ahead, as far as it does not launch them.
template <class Target>
Parts CostModel::Components::with_drafts(const ResidencySummary& residency, const Pass& pass,
                                         const Target& target) const {
  const auto& speculation = placed.deployment.speculation;
  if (!speculation) return target(0);
  const Parts drafted = draft_parts(residency, pass);
  const std::uint32_t passed = speculation->draft.of_target ? placed.deployment.step_tokens().passed : 1;
  const double launching = draft ? speculation->tokens * draft->host.step_launches(pass.sequences, passed) : 0;
  Parts parts = target(std::max(0.0, drafted.total() - launching));
  parts.add_times(1, drafted);
  parts.width_squared[static_cast<std::size_t>(CostTerm::kHost)] += square(kVerifySpread * parts.total());
  return parts;
}

// Prompts are bound by arithmetic; short ones by the weights, which are read once for all of them, and by the rows of
// the tokens before them.
Parts CostModel::Components::target_prompt_parts(const ResidencySummary& residency, const Pass& pass) const {
  const bool whole_model = !attention_only(placed.shape);
  const std::uint64_t tokens = pass.sequences * residency.computed_tokens();
  const StepTraffic traffic = prompt_traffic(residency, pass.sequences);
  const LinearWork work = linear.work_of(traffic, tokens, pass.fill);
  Parts parts = nothing();
  if (whole_model) {
    linear.add_prompts(parts, work);
    links.add(parts, tokens);
  }
  attention.add_prompts(parts, residency, traffic, pass.sequences);
  policy.add_prompts(parts, residency, traffic);
  if (whole_model) host.add_prompts(parts, pass.sequences, pass.beside);
  parts.least = limit.seconds_of(work, least_attention(traffic), 0, earlier_bytes(residency, pass.sequences));
  return parts;
}

Parts CostModel::Components::prompt_parts(const ResidencySummary& residency, const Pass& pass) const {
  Parts parts = target_prompt_parts(residency, pass);
  add_draft_prompts(parts, residency, pass);
  add_repetition(parts, residency, pass);
  return parts;
}

void CostModel::Components::add_repetition(Parts& parts, const ResidencySummary& prompts, const Pass& pass) const {
  if (prompts.repeats == 0 || !prompts.evicts) return;
  const std::uint32_t behind = prompts.prompt + prompts.cached;
  const auto add = [&](std::uint32_t times, std::uint32_t tokens) {
    if (times == 0 || tokens == 0) return;
    parts.add_times(times, target_prompt_parts(repetition_summary(placed.shape, behind, tokens), pass));
  };
  add(prompts.computed_tokens() / prompts.repeats, prompts.repeats);
  add(1, prompts.computed_tokens() % prompts.repeats);
}

// The host launches what drafts while the device still computes, once it has launched the target's kernels.
void CostModel::Components::add_draft_prompts(Parts& parts, const ResidencySummary& prompts, const Pass& pass) const {
  if (!draft) return;
  const double ahead = std::max(0.0, parts.total() - host.prompt_launches());
  const ResidencySummary r = draft_residency(draft->placed.shape, prompts);
  parts.add_times(1, draft->prompt_parts(r, {pass.sequences, pass.fill, ahead}));
}

Parts CostModel::Components::mixed_parts(const ResidencySummary& answers, const Pass& pass,
                                         const ResidencySummary& prompts, const Pass& prompt_pass) const {
  const StepTokens tokens = placed.deployment.step_tokens();
  const std::uint64_t passed = pass.sequences * tokens.passed;
  const std::uint64_t computed = prompt_pass.sequences * prompts.computed_tokens();
  const StepTraffic of_answers = decode_traffic(answers, pass.sequences, tokens);
  const StepTraffic of_prompts = prompt_traffic(prompts, prompt_pass.sequences);
  const LinearWork work = mixed_work(passed, pass, computed, prompt_pass);
  const double kv_bytes = kv_read(answers, of_answers) + earlier_bytes(prompts, prompt_pass.sequences);
  const KernelRates::Reading read = reading(work, kv_bytes);
  const auto target = [&](double ahead) {
    Parts parts = nothing();
    const bool whole_model = !attention_only(placed.shape);
    if (whole_model) {
      linear.add_mixed(parts, work, linear.work_of(of_prompts, computed, prompt_pass.fill), read.linear);
      links.add(parts, passed + computed);
    }
    attention.add_step(parts, answers, of_answers, pass.sequences, passed, read.attention);
    attention.add_prompts(parts, prompts, of_prompts, prompt_pass.sequences, true);
    policy.add_step(parts, answers, of_answers, observed_bytes(answers, passed));
    policy.add_prompts(parts, prompts, of_prompts);
    if (whole_model) host.add_mixed(parts, pass.sequences, tokens, prompt_pass.sequences, ahead);
    parts.least = limit.seconds_of(work, of_answers[KernelFamily::kAttention].value + least_attention(of_prompts),
                                   static_cast<double>(of_answers.state_bytes), kv_bytes);
    return parts;
  };
  Parts parts = with_drafts(answers, pass, target);
  add_draft_prompts(parts, prompts, prompt_pass);
  add_repetition(parts, prompts, prompt_pass);
  return parts;
}

LinearWork CostModel::Components::mixed_work(std::uint64_t answers, const Pass& pass, std::uint64_t computed,
                                             const Pass& prompt_pass) const {
  StepWork work;
  work.tokens = answers + computed;
  work.logit_tokens = answers + prompt_pass.sequences;
  const double full =
      pass.fill * static_cast<double>(answers) + prompt_pass.fill * static_cast<double>(computed);
  return linear.work_of(step_traffic(placed.shape, placed.types(), work), work.tokens,
                        full / static_cast<double>(work.tokens));
}

}  // namespace kvroof
