#include "kernels/engine/selected_rows.hpp"

#include <algorithm>
#include <limits>

namespace kvroof {
namespace {

// Memory of one thread: calls of different heads may run at once.
struct ShownRows {
  std::vector<float> logits, weights;
};
thread_local ShownRows shown;

// Logits of what was read go where their slots lie, −∞ everywhere else.
void spread_logits(const AttendCall& call, std::span<const float> logits, std::span<float> all) {
  const std::size_t rows = call.rows(), slots = call.keys.count;
  std::ranges::fill(all, -std::numeric_limits<float>::infinity());
  for (std::size_t g = 0; g < call.policy->group(); ++g) {
    for_each_run(call, [&](const SlotRun& run, std::size_t at) {
      std::ranges::copy(logits.subspan(g * rows + at, run.count), all.begin() + g * slots + run.first);
    });
  }
}

// Logits and weights of the exact attention.
void compute_all(const AttendCall& call, const AttentionRule& rule, std::span<float> logits, std::span<float> weights) {
  const std::size_t width = call.keys.width, slots = call.keys.count;
  for (std::size_t g = 0; g < call.policy->group(); ++g) {
    const std::span<float> of_head = logits.subspan(g * slots, slots);
    compute_logits(call.q.subspan(g * width, width), call.keys, rule.logits, of_head);
    if (!rule.alibi.empty()) {
      add_alibi(call.policy->positions(call.head), call.query, rule.alibi_of(call.first_query_head + g), of_head);
    }
    softmax(of_head, weights.subspan(g * slots, slots), rule.sink(call.first_query_head + g));
  }
}

}  // namespace

void select_rows(LayerPolicy& policy, HeadId head, TokenPos query, std::span<const float> q,
                 const HeadRowsSource& source, SelectionScratch& scratch, SelectedRows& selected) {
  const std::span<const TokenPos> positions = policy.positions(head);
  AttentionRows rows{policy.step_of(query), query, positions, policy.group()};
  rows.queries = q.data();
  auto& [slots, reads] = scratch;
  reads.assign(policy.group() * positions.size(), 0);
  for (std::uint32_t g = 0; g < policy.group(); ++g) {
    slots.clear();
    policy.select(head, g, rows, slots, &source);
    for (const SlotId slot : slots) reads[g * positions.size() + slot.value] = 1;
  }
  const auto any = [&](std::size_t slot) {
    for (std::uint32_t g = 0; g < policy.group(); ++g) {
      if (reads[g * positions.size() + slot] != 0) return true;
    }
    return false;
  };
  slots.clear();
  for (std::uint32_t s = 0; s < positions.size(); ++s) {
    if (any(s)) slots.emplace_back(s);
  }
  selected.runs.clear();
  selected.positions.clear();
  selected.hidden.clear();
  for (const SlotId slot : slots) {
    std::vector<SlotRun>& runs = selected.runs;
    if (!runs.empty() && runs.back().first + runs.back().count == slot.value) {
      ++runs.back().count;
    } else {
      runs.push_back({slot.value, 1});
    }
    selected.positions.push_back(positions[slot.value]);
  }
  for (std::uint32_t g = 0; g < policy.group(); ++g) {
    for (const SlotId slot : slots) selected.hidden.push_back(reads[g * positions.size() + slot.value] ^ 1U);
  }
}

void show_selected(const AttendCall& call, const AttentionRule& rule, std::span<const float> logits) {
  LayerPolicy& policy = *call.policy;
  if (!policy.observes(call.query)) return;
  AttentionRows rows{policy.step_of(call.query), call.query, policy.positions(call.head), policy.group()};
  const std::size_t all = std::size_t{rows.group} * rows.slots();
  shown.logits.resize(all);
  rows.logits = shown.logits.data();
  if (policy.traits().needs_weights) {
    shown.weights.resize(all);
    rows.weights = shown.weights.data();
    compute_all(call, rule, shown.logits, shown.weights);
    policy.note_read(call.head, (rows.slots() - call.rows()) * call.keys.width);
  } else {
    spread_logits(call, logits, shown.logits);
  }
  policy.observe(call.head, rows);
}

}  // namespace kvroof
