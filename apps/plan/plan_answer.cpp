#include "apps/plan/plan_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "apps/prediction/cached_prompt.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

std::string devices_text(const Device& device, const Plan& plan) {
  return plan.devices() > 1
             ? fmt::format("{} × {}{}", plan.devices(), device.title, layout_text(plan.deployment))
             : device.title;
}

std::string binding_text(const Question& q, const std::string& limited_by) {
  if (limited_by == "capacity") return "memory";
  if (limited_by == "tpot") return fmt::format("--tpot-ms {:.6g}", *q.goals.tpot_ms);
  return limited_by == "ttft" ? fmt::format("--ttft-ms {:.6g}", *q.goals.ttft_ms) : "the engine";
}

// What takes most of a step, or under load of a token's time.
std::string_view most_text(const Plan& plan) {
  const bool waits = plan.prediction.waits_most(plan.told().token.value);
  return waits ? "other users' prompts" : name_of(plan.prediction.limited_by);
}

// Goals hold steps and a prompt by themselves; a server's clients wait for others' prompts as well.
std::string load_text(const Question& q, const Plan& plan) {
  const Load& load = *plan.load;
  std::string missed;
  if (!q.goals.step_in_time(load.token.value)) missed = fmt::format("{:.6g} ms a token", *q.goals.tpot_ms);
  if (!q.goals.first_token_in_time(load.first_token.value)) {
    missed += fmt::format("{}{:.6g} ms for a first token", missed.empty() ? "" : " and ", *q.goals.ttft_ms);
  }
  return fmt::format("; under load{}, {} tokens/s at {} ms a token{}",
                     plan.batch > 1 ? ", with others' prompts in between" : ", with the prompt before each answer",
                     number_text(load.tokens_per_s.value), number_text(load.token.value * 1e3),
                     missed.empty() ? "" : ", which misses " + missed + " (--under-load plans for that)");
}

// How long a prompt may be with this batch.
std::string longest_prompt_text(const Question& q, const Plan& plan) {
  if (plan.longest_prompt + q.request.output == q.request.model.max_positions) {
    return fmt::format("with this batch prompts fit up to the model's {} positions", q.request.model.max_positions);
  }
  const bool goals = q.goals.tpot_ms || q.goals.ttft_ms;
  return fmt::format("the longest prompt that fits with this batch{} is {}", goals ? " within the goals" : "",
                     counted(plan.longest_prompt, "token"));
}

// Whether caches are most of what sequences take, beside the weights and what an engine keeps for itself.
bool mostly_cache(const MemoryLedger& m) {
  const std::uint64_t fixed = m.weights.value + m.draft_weights.value + m.reserve.value;
  return 2 * m.kv_allocated.value >= m.total().value - fixed;
}

}  // namespace

std::vector<LedgerLine> lines_of(const MemoryLedger& m) {
  std::vector<LedgerLine> lines = {{"weights", "weights", m.weights},
                                   {"KV cache", "kv_allocated", m.kv_allocated},
                                   {"policy state", "policy_state", m.policy_state},
                                   {"activations", "activations", m.activations},
                                   {"prefill transient", "prefill_transient", m.prefill_transient},
                                   {"engine reserve", "reserve", m.reserve}};
  if (m.states.value > 0) lines.insert(lines.begin() + 3, {"states", "states", m.states});
  if (m.beam_copies.value > 0) lines.insert(lines.end() - 1, {"beam copies", "beam_copies", m.beam_copies});
  if (m.draft_weights.value > 0) {
    lines.insert(lines.end() - 1, {{"draft's weights", "draft_weights", m.draft_weights},
                                   {"draft's cache", "draft_cache", m.draft_cache}});
  }
  if (m.kv_scales.value == 0) return lines;
  // Of a quantised cache each part has a line.
  lines[1] = {"KV codes", "kv_codes", Bytes(m.kv_allocated.value - m.kv_scales.value - m.kv_residual.value)};
  lines.insert(lines.begin() + 2, {{"KV scales", "kv_scales", m.kv_scales},
                                   {"KV residual window", "kv_residual", m.kv_residual}});
  return lines;
}

std::string sequences_text(std::uint64_t count) {
  return count == 1 ? "one sequence" : fmt::format("{} sequences", count);
}

KvType kv_type_of(const Question& q, const Plan& plan) {
  return q.request.with_cache_of(plan.workload->policy(), plan.deployment).types.kv;
}

// What the deployment serves.
static std::string served_text(const Question& q, const Plan& plan) {
  const std::string subject = fmt::format("{} ({}) under {} on {}, {}", q.request.model.name,
                                          plan.deployment.weights.name, q.request.title(plan.workload->policy()),
                                          devices_text(q.device, plan) + with_drafts_text(plan.deployment),
                                          lengths_text(q.request, plan.workload->mean().cached));
  const std::uint64_t unreserved = plan.ledger.total().value - plan.ledger.reserve.value;
  if (plan.largest_in_memory == 0 && 2 * plan.ledger.reserve.value > plan.ledger.capacity.value &&
      unreserved <= plan.ledger.capacity.value) {
    return fmt::format("{}: not even one sequence fits beside the {} GiB of {} that the engine leaves alone; "
                       "--gpu-memory-utilization says how much it takes.",
                       subject, number_text(gib(plan.ledger.reserve)), number_text(gib(plan.ledger.capacity)));
  }
  if (plan.largest_in_memory == 0) {
    return fmt::format("{}: not even one sequence fits; it needs {} GiB more than the {} GiB that are usable.", subject,
                       number_text(gib(plan.ledger.total()) - gib(plan.ledger.capacity)),
                       number_text(gib(plan.ledger.capacity)));
  }
  const Prediction& p = plan.prediction;
  const Load t = plan.told();
  const char* when = plan.under_load && plan.load ? " under load" : "";
  const std::string late = fmt::format("{} ms a token, {} ms for a prompt{}", number_text(t.token.value * 1e3),
                                       number_text(t.first_token.value * 1e3), when);
  if (plan.batch == 0) return fmt::format("{}: not even one sequence meets the goal: {}.", subject, late);
  if (p.fits && !plan.in_time) {
    return fmt::format("{}: {} fit{} but miss{} the goal: {}.", subject, sequences_text(plan.batch),
                       plan.batch == 1 ? "s" : "", plan.batch == 1 ? "es" : "", late);
  }
  std::string speed = fmt::format("{} tokens/s at {} ms a token{} (80 %: {})", number_text(t.tokens_per_s.value),
                                  number_text(t.token.value * 1e3), when, interval_text(t.token, 1e3));
  if (!plan.under_load && plan.load) speed += load_text(q, plan);
  if (q.longest_prompt && plan.met()) {
    const bool goals = q.goals.tpot_ms || q.goals.ttft_ms;
    return fmt::format("{}: the longest prompt that {} fit{} with{}; {} {}; most of a step goes to {}.",
                       subject, sequences_text(plan.batch), plan.batch == 1 ? "s" : "",
                       goals ? ", within the goals" : "",
                       plan.batch == 1 ? "it makes" : "they make", speed, most_text(plan));
  }
  if (q.goals.batch) {
    const std::string some = sequences_text(plan.batch);
    if (!p.fits && plan.limited_by == "engine") {
      return fmt::format("{}: the engine takes at most {} at once, fewer than {}.", subject, plan.largest_in_memory,
                         plan.batch);
    }
    return p.fits ? fmt::format("{}: {} fit{} (at most {}) and make{} {}; most of a step goes to {}.", subject, some,
                                plan.batch == 1 ? "s" : "", plan.largest_in_memory, plan.batch == 1 ? "s" : "", speed,
                                most_text(plan))
                  : fmt::format("{}: {} do not fit, at most {} do.", subject, some, plan.largest_in_memory);
  }
  return fmt::format("{}: {} at once, {}; {} allows no more sequences, and most of a step goes to {}.", subject,
                     sequences_text(plan.batch), speed, binding_text(q, plan.limited_by), most_text(plan));
}

// Of those that were searched beside a plan without drafts, the one with them that makes most tokens a second.
static const Plan* best_with_drafts(const Question& q, const Plan& plan) {
  const Plan* best = nullptr;
  for (const Plan& other : q.plans) {
    const bool alike = layout_options(other.deployment) == layout_options(plan.deployment) &&
                       other.workload == plan.workload &&
                       other.deployment.weights.name == plan.deployment.weights.name;
    if (!alike || !other.drafts || other.batch == 0) continue;
    if (best == nullptr || other.told().tokens_per_s.value > best->told().tokens_per_s.value) best = &other;
  }
  return best;
}

std::string answer_text(const Question& q, const Plan& plan) {
  std::string text = served_text(q, plan);
  if (plan.batch > 0) text += middle_text(q.device, plan.step_factors);
  const bool evicts = !plan.workload->policy().is_full();
  if (plan.batch == 0 || !plan.prediction.fits) return text;
  if (!plan.drafts) {
    const Plan* with = best_with_drafts(q, plan);
    if (with == nullptr) return text;
    return fmt::format("{} With {}: {}.", text, sequences_text(with->batch),
                       gain_text(*with->drafts, evicts, plan.under_load));
  }
  std::string without = "without them none would be served";
  if (plan.batch_without_drafts > 0) {
    without = fmt::format("without them {} would make {} tokens/s", sequences_text(plan.batch_without_drafts),
                          number_text(plan.tokens_per_s_without_drafts));
  }
  return fmt::format("{} {}; {}.", text, gain_text(*plan.drafts, evicts, plan.under_load), without);
}

std::string advice_text(const Question& q, const Plan& plan) {
  if (!plan.met()) {
    std::string text;
    for (const Remedy& r : q.remedies) {
      text += fmt::format("{}`{}` {}", text.empty() ? "" : ", ", r.change,
                          (text.empty() ? "would serve " : "") + sequences_text(r.batch));
    }
    if (!text.empty()) return text;
    if (plan.limited_by == "engine") return "--max-num-seqs lets it take more at once, as far as memory holds them";
    const char* tried = q.device.kind == DeviceKind::kCpu
                            ? "smaller types do not serve"
                            : "neither more devices of this kind nor smaller types serve";
    return fmt::format("{} this within the goals: take a shorter prompt, a smaller batch or budget, or another device",
                       tried);
  }
  if (plan.limited_by == "tpot") {
    return fmt::format("memory would hold {}; a faster device or a smaller budget allows more in time",
                       sequences_text(plan.largest_in_memory));
  }
  const char* change = "the engine takes no more at once, whatever is free";
  if (plan.limited_by != "engine") {
    change = mostly_cache(plan.ledger)
                 ? "a smaller budget or a smaller type of the cache (--kv) lets more sequences in"
                 : "the KV cache is not what sequences take most of: a smaller budget lets few more in";
  }
  return fmt::format("{}; {}", longest_prompt_text(q, plan), change);
}

}  // namespace kvroof
