// What the numbers of a replay refer to, in sentences.
#include <fmt/format.h>

#include <algorithm>

#include "apps/prediction/intervals.hpp"
#include "apps/prediction/workload.hpp"
#include "apps/replay/replay_output.hpp"
#include "apps/replay/rotation_note.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

using Notes = std::vector<std::string>;

void add_once(Notes& notes, std::string text) {
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(std::move(text));
}

void note_budgets(const ReplayAnswer& answer, Notes& notes) {
  Notes meanings;
  for (const PolicySpec& spec : answer.request.points) {
    if (spec.budget.kind == Budget::Kind::kUnlimited) continue;
    add_once(meanings, fmt::format("{} = {}", spec.budget.text, spec.budget.describe()));
  }
  std::string text;
  for (const std::string& meaning : meanings) text += (text.empty() ? "budget " : "; ") + meaning;
  if (!text.empty()) notes.push_back(text);
}

std::string in_percent(double share) {
  return share >= 1 ? fmt::format("{:.0f}", 100 * share) : fmt::format("{:.3g}", 100 * share);
}

// "5", or of sequences that differ "5 to 7".
std::string range(const std::string& least, const std::string& most) {
  return least == most ? least : least + " to " + most;
}

bool has_quality(const ReplayAnswer& answer) {
  return std::any_of(answer.results.begin(), answer.results.end(), [](const auto& r) { return r.quality; });
}

// So many tokens of another prompt are another share of it: what is priced is then not what was measured.
void note_shares(const ReplayAnswer& answer, Notes& notes) {
  if (!answer.request.prompt || !has_quality(answer)) return;
  const std::uint32_t projected = *answer.request.prompt;
  std::vector<std::uint32_t> prompts;
  for (const ResidencyLog& log : decoding(answer.results.front().residency)) prompts.push_back(log.head().prompt);
  const auto [least, most] = std::ranges::minmax(prompts);
  for (const PolicySpec& spec : answer.request.points) {
    if (spec.budget.kind != Budget::Kind::kTokens) continue;
    const double tokens = spec.budget.value, share = tokens / projected;
    const std::string recorded = range(in_percent(tokens / most), in_percent(tokens / least));
    if (recorded == in_percent(share)) continue;
    std::string text = fmt::format(
        "warning: budget {} is {} % of the recorded prompt ({} tokens), which quality is of, and {} % of the projected "
        "one ({} tokens), which bytes and time are of",
        spec.budget.text, recorded, range(std::to_string(least), std::to_string(most)), in_percent(share), projected);
    if (share < 1) text += fmt::format("; a budget written as a share, {:.3g}, is measured and projected alike", share);
    add_once(notes, std::move(text));
  }
}

void note_unmeasured(const ReplayAnswer& answer, Notes& notes) {
  if (!has_quality(answer)) return;
  Notes points;
  for (const ReplayPoint& p : answer.points) {
    if (p.measured) continue;
    add_once(points, p.result->spec.text() + (answer.request.models.size() > 1 ? " as " + p.model : ""));
  }
  if (points.empty()) return;
  notes.push_back(fmt::format(
      "warning: {}: nothing was evicted from the recording, and the projection evicts, so that recall and output error "
      "were not measured; record a longer prompt, or write the budget as a share",
      join(points, ", ")));
}

void note_quality(const ReplayAnswer& answer, Notes& notes) {
  const TraceManifest& m = answer.manifest;
  const MeasureOptions& measure = answer.request.measure;
  if (!measure.recall) {
    notes.emplace_back("--quality none: recall and output error were not measured");
    return;
  }
  if (!has_quality(answer)) {
    notes.emplace_back("the trace holds no decoded token: recall and output error are not defined");
    return;
  }
  if (!measure.output_error) notes.emplace_back("--quality recall: output error was not measured");
  if (m.policy != kFullAttention) {
    notes.push_back(
        fmt::format("the trace was recorded under {}: recall and output error compare with attention over all "
                    "recorded tokens in that run, not with a full-attention run",
                    m.policy));
  }
  if (!answer.request.models.empty()) {
    const std::string model = m.model_name.empty() ? "the imported tensors" : "the recorded model, " + m.model_name;
    notes.push_back(fmt::format("recall and output error are those of {}; bytes and time are projected", model));
  }
}

void note_positions(const ReplayAnswer& answer, Notes& notes) {
  Notes bounds;
  bool without_budget = false;
  for (const ReplayPoint& p : answer.points) {
    if (!p.bounds) continue;
    without_budget = without_budget || p.result->spec.budget.kind == Budget::Kind::kUnlimited;
    add_once(bounds,
             fmt::format("{:.3f} and {:.3f} at {}", p.bounds->random, p.bounds->oracle, p.bounds->budget.describe()));
  }
  std::string text = "position: where the mean recall lies between random (0) and oracle (1) at the same budget";
  if (without_budget) text += ", or as many tokens as a policy without one reads";
  notes.push_back(fmt::format("{}; the two recall {}", text, join(bounds, "; ")));
}

void note_columns(const ReplayAnswer& answer, Notes& notes) {
  const bool measured = answer.request.measure.recall;
  if (measured && !has_quality(answer)) return;
  const bool positions =
      std::any_of(answer.points.begin(), answer.points.end(), [](const auto& p) { return p.bounds; });
  const bool shows_worst = measured && (answer.request.devices.empty() || !positions);
  notes.push_back(std::string("kept: tokens in a head, mean over the decoded steps") +
                  (shows_worst ? "; recall worst: the mean of the lowest 1 %" : ""));
  const auto& quality = answer.results.front().quality;
  if (answer.request.devices.empty() && quality && quality->recall_standard_error()) {
    notes.push_back(fmt::format("±95%: 1.96 standard errors of the mean recall of {} sequences",
                                quality->sequences.size()));
  }
  if (positions) note_positions(answer, notes);
  const auto dense = [](const PointResult& r) { return r.traits.dense_layers > 0; };
  if (positions && std::ranges::any_of(answer.results, dense)) {
    notes.emplace_back("policies with dense layers read everything there: they may recall more than the oracle");
  }
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(answer.results, [&](const PointResult& r) { return r.spec.name == name; });
  };
  if (has("oracle")) {
    notes.emplace_back(
        "oracle is a bound, not a policy: each query head reads the tokens that it weights most, and evicts none");
  }
  if (has("oracle-causal")) {
    notes.emplace_back(
        "oracle-causal is a bound, not a policy: it knows what later queries attend to, and evicts for good");
  }
}

// Sequences that stopped at their first new token have a prompt and no decode step.
void note_undecoded(const ReplayAnswer& answer, Notes& notes) {
  const std::vector<ResidencyLog>& all = answer.results.front().residency;
  const std::size_t decoded = decoding(all).size();
  if (decoded == all.size()) return;
  notes.push_back(fmt::format("{} of {} sequences decoded no token: means over decode steps are of the others{}",
                              all.size() - decoded, all.size(),
                              answer.request.output ? ", and so is what is projected" : ""));
}

void note_costs(const ReplayAnswer& answer, Notes& notes) {
  if (answer.manifest.model_shape_json.empty() && answer.request.models.empty()) {
    notes.push_back(fmt::format(
        "{}, and the largest batch is that of a device which holds nothing else; --as adds a model", kAttentionAlone));
  }
  if (answer.request.devices.empty()) return;
  const auto has_policy = [](const ReplayPoint& p) { return p.prediction && p.prediction->step.unmeasured > 0; };
  notes.push_back(fmt::format(
      "± is the larger side of the 80 % interval: the uncertainty of every constant, scaled so that it holds for "
      "published measurements of the same kind (--format json names those rows for each point, and has both sides){}",
      policy_text(std::ranges::any_of(answer.points, has_policy))));
  const auto no_room = [](const ReplayPoint& p) { return !p.prediction; };
  if (std::any_of(answer.points.begin(), answer.points.end(), no_room)) {
    notes.emplace_back("limited by capacity: the batch does not fit, so there is no step time");
  }
}

// Of what a projection takes otherwise than the checkpoint has it.
void note_stored_weights(const ReplayAnswer& answer, Notes& notes) {
  const ReplayRequest& request = answer.request;
  if (request.devices.empty()) return;
  for (std::size_t i = 0; i < request.models.size(); ++i) {
    if (request.stored[i].empty()) continue;
    add_once(notes, fmt::format("{} is stored in {}, and its weights are taken in {}, as kvroof's own engine runs "
                                "them: they leave less memory for sequences; `kvroof plan` and `kvroof compare` with "
                                "--engine and --trace {} price them as they are stored",
                                request.models[i].name, request.stored[i],
                                name_of(request.weights.value_or(request.models[i].weight_type)),
                                request.trace.string()));
  }
}

// Of the longest sequence that is projected.
void note_model_positions(const ReplayAnswer& answer, Notes& notes) {
  const ReplayRequest& request = answer.request;
  std::uint32_t prompt = 0, output = 0;
  for (const ResidencyLog& log : answer.results.front().residency) {
    const std::uint32_t asked = request.prompt.value_or(log.head().prompt);
    const std::uint32_t generated = request.output.value_or(log.head().steps);
    if (std::uint64_t{asked} + generated <= std::uint64_t{prompt} + output) continue;
    prompt = asked;
    output = generated;
  }
  for (const ModelShape& model : request.models) {
    if (std::string note = positions_note(model, prompt, output); !note.empty()) add_once(notes, std::move(note));
  }
}

void note_rotations(const ReplayAnswer& answer, Notes& notes) {
  std::string note = rotation_note(answer.manifest, answer.request.points);
  if (!note.empty()) notes.push_back(std::move(note));
}

void note_row_cache(const ReplayAnswer& answer, Notes& notes) {
  if (!answer.request.row_cache) return;
  if (answer.row_cache != nullptr) {
    notes.push_back(answer.row_cache->text(answer.request.points));
    return;
  }
  notes.push_back(fmt::format("attention rows of one byte a weight, from {}: --row-cache-check says what they change, "
                              "and whether a recording under a policy is reproduced",
                              answer.request.row_cache->string()));
}

// "full, window:budget=8: " where there are other points as well.
std::string named(const ReplayAnswer& answer, const Notes& points) {
  return points.size() == answer.results.size() ? std::string() : join(points, ", ") + ": ";
}

// Of the points whose policies meet the recorded rows as they are.
void note_recorded_cache(const ReplayAnswer& answer, Notes& notes) {
  const TraceManifest& m = answer.manifest;
  if (!m.cache_type) return;
  Notes with_it, without;
  for (const PointResult& result : answer.results) {
    if (!meets_recorded_rows(m, result.spec)) continue;
    const bool same = answer.request.models.empty() && cache_of(result.spec, m) == *m.cache_type;
    add_once(same ? with_it : without, result.spec.text());
  }
  const std::string_view type = name_of(*m.cache_type);
  if (!with_it.empty()) {
    notes.push_back(fmt::format(
        "{}the recorded cache was {}: bytes and time are of that type, and policies meet its rows as it gave them back",
        named(answer, with_it), type));
  }
  if (!without.empty()) {
    notes.push_back(fmt::format(
        "{}the recorded cache was {}: bytes and time are of another type, and what is kept, recall and output error "
        "still of its rows as it gave them back",
        named(answer, without), type));
  }
}

// Of the points that round rows to a cache of their own.
void note_caches(const ReplayAnswer& answer, Notes& notes) {
  const TraceManifest& m = answer.manifest;
  Notes types, points;
  bool by_age = false;
  for (const PointResult& result : answer.results) {
    if (meets_recorded_rows(m, result.spec)) continue;
    by_age = by_age || result.spec.kv->by_age();
    add_once(types, std::string(name_of(*result.spec.kv)));
    add_once(points, result.spec.text());
  }
  if (types.empty()) return;
  const std::string before =
      m.cache_type ? fmt::format("; the recorded cache had rounded k and v to {} before", name_of(*m.cache_type)) : "";
  notes.push_back(fmt::format(
      "{}cache of {}: its policies see logits of k as the cache gives it back, and output error has its rounding in "
      "it; recall is of the exact attention on what is kept{}",
      named(answer, points), join(types, ", "), before));
  if (!by_age) return;
  notes.emplace_back(
      "a token that is evicted out of a quantised group of 32 keys leaves a hole: the group is held and read until all "
      "of it is gone, and nothing is packed anew");
}

// Evictions that no point is compared with say nothing of whether they are right.
void note_not_compared(const ReplayAnswer& answer, Notes& notes) {
  const TraceManifest& m = answer.manifest;
  if (m.source != "engine" || m.policy == kFullAttention) return;
  if (answer.request.row_cache && answer.row_cache == nullptr) return;  // whose note says how to compare
  const std::optional<PolicySpec> recorded = recorded_policy(m);
  if (recorded && policy_info(recorded->name).traits(*recorded).selects) return;  // which evicts nothing
  notes.push_back(fmt::format(
      "the evictions that were recorded under {0} are not compared with a replay's: no point has that policy and "
      "budget with the recorded seed and cache (--policy {0})",
      m.policy));
}

void note_reproduction(const ReplayAnswer& answer, Notes& notes) {
  if (std::ranges::none_of(answer.results, [](const PointResult& r) { return r.reproduction.has_value(); })) {
    note_not_compared(answer, notes);
  }
  for (const PointResult& result : answer.results) {
    if (!result.reproduction) continue;
    const Reproduction& r = *result.reproduction;
    if (r.decisions == 0) {
      notes.push_back(fmt::format("{}: the recorded run evicted nothing, nor does the replay", result.spec.text()));
    } else if (r.differences == 0) {
      notes.push_back(fmt::format("{}: all {} recorded evictions are reproduced", result.spec.text(), r.decisions));
    } else if (const std::string problem = r.problem(); !problem.empty()) {
      notes.push_back(fmt::format("{}: {}", result.spec.text(), problem));
    } else {
      notes.push_back(
          fmt::format("{}: {} of {} recorded evictions differ from the replay's, within rounding; the first: {}",
                      result.spec.text(), r.differences, r.decisions, r.first_difference));
    }
  }
}

// A closed loop has the policy that it was recorded under, whatever is replayed beside it.
void note_closed_loop(const ReplayAnswer& answer, Notes& notes) {
  if (answer.open_closed == nullptr) return;
  const OpenClosedReport& report = *answer.open_closed;
  if (!report.rounding_note.empty()) notes.push_back(report.rounding_note);
  TraceManifest closed;
  closed.policy = report.policy;
  const auto plain = [](const PointResult& r) { return r.spec.is_full(); };
  const auto same = [&](const PointResult& r) { return is_recorded_policy(closed, r.spec); };
  if (std::ranges::all_of(answer.results, plain) || std::ranges::any_of(answer.results, same)) return;
  notes.push_back(fmt::format("the closed loop was recorded under {}, which none of the points is: open against closed "
                              "loop is of that policy alone",
                              report.policy));
}

}  // namespace

std::vector<std::string> replay_notes(const ReplayAnswer& answer) {
  Notes notes;
  note_shares(answer, notes);
  note_unmeasured(answer, notes);
  note_budgets(answer, notes);
  note_quality(answer, notes);
  note_columns(answer, notes);
  note_undecoded(answer, notes);
  note_costs(answer, notes);
  note_stored_weights(answer, notes);
  note_model_positions(answer, notes);
  note_recorded_cache(answer, notes);
  note_caches(answer, notes);
  note_rotations(answer, notes);
  note_row_cache(answer, notes);
  note_reproduction(answer, notes);
  note_closed_loop(answer, notes);
  return notes;
}

std::vector<std::string> policy_notes(std::span<const PolicySpec> points, const TraceManifest& manifest) {
  Notes notes;
  for (const PolicySpec& spec : points) {
    for (const TraceSequence& sequence : manifest.sequences) {
      std::string advice = policy_advice(spec, sequence.prompt);
      if (advice.empty()) continue;
      notes.push_back(std::move(advice));
      break;
    }
  }
  return notes;
}

}  // namespace kvroof
