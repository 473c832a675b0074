#include "sim/policy/window_scores.hpp"

#include <algorithm>

#include "sim/core/counted.hpp"
#include "sim/core/error.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {
constexpr std::uint32_t kKvpressWindow = 64;  // window_size of SnapKVPress, where none is given
}

bool is_kvpress_rule(const PolicySpec& spec) {
  return spec.choice("rule", {"repository", "kvpress"}, "repository") == "kvpress";
}

WindowRule window_rule(const PolicySpec& spec, WindowRule fallback) {
  WindowRule rule = fallback;
  rule.pool_first = is_kvpress_rule(spec);
  if (rule.pool_first) rule.window = kKvpressWindow;
  rule.window = spec.count("window", rule.window, 1);
  rule.kernel = spec.count("kernel", rule.kernel, 1);
  if (rule.kernel % 2 == 0) {
    throw usage_error(fmt::format("policy {}: kernel={}: expected an odd number, so that it has a middle", spec.name,
                                  rule.kernel));
  }
  rule.max_pool = spec.choice("pool", {"avg", "max"}, rule.max_pool ? "max" : "avg") == "max";
  rule.reduction = group_reduction(spec);
  return rule;
}

PolicyTraits window_traits(const PolicySpec& spec, const WindowRule& rule) {
  PolicyTraits t;
  t.rows = RowNeed::kLast;
  t.last_rows = rule.window;
  // kvpress stops where all tokens are of the window, so that none has a score.
  if (is_kvpress_rule(spec)) {
    t.least_prompt = {rule.window + 1, "rule=kvpress evicts from prompts that are longer than its window",
                      "a smaller window, rule=repository"};
  }
  t.needs_weights = true;
  t.unit = group_unit(spec);
  t.schedule = Schedule::kPrefillOnly;
  t.query_head_sums = t.evict_read = sizeof(float);
  t.flops_per_slot = 1;
  if (rule.variance > 0) {
    t.query_head_sums = 2 * sizeof(float);
    t.flops_per_slot = 6;
  }
  return t;
}

std::string full_window_advice(std::uint32_t window, std::uint32_t k, std::string_view same) {
  if (k > window) return {};
  return fmt::format("the window of {} tokens stays before all others, so that of a budget of {} nothing is left for "
                     "scores to choose: the last {} stay, as under {}; give a budget above {} or a smaller window=",
                     window, k, counted(k, "token"), same, window);
}

std::string first_window_advice(std::uint32_t window, std::uint32_t k) {
  if (k > window) return {};
  return fmt::format("the window's {} tokens score above the others, so that a budget of {} keeps hardly any but "
                     "tokens of the window; give a budget above {} or a smaller window=",
                     window, k, window);
}

WindowScoredPolicy::WindowScoredPolicy(const WindowRule& rule, const PolicyContext& context)
    : rule_(rule),
      context_(context),
      heads_(context.storage_heads, Head(rule.variance > 0 ? 2 * context.group : context.group)) {}

std::uint32_t WindowScoredPolicy::window() const { return std::min(rule_.window, context_.prompt); }

void WindowScoredPolicy::admit(HeadId head, SlotId slot, TokenPos position) {
  if (position.value < context_.prompt) heads_[head.value].columns.admit(slot);
}

void WindowScoredPolicy::observe(HeadId head, const AttentionRows& rows) {
  Head& h = heads_[head.value];
  for (std::uint32_t g = 0; g < rows.group; ++g) add_row(h, rows, g);
  if (rows.query.value + 1 == context_.prompt) finish(h, rows);
}

// Means and squared distances from them grow row by row (Welford 1962): sums of squares would lose what rows differ by.
void WindowScoredPolicy::add_row(Head& head, const AttentionRows& rows, std::uint32_t g) const {
  const std::span<float> sums = head.columns.column(g, rows.slots());
  const std::span<const float> weights = rows.weights_of(g);
  head.walked += 2 * sums.size_bytes();
  if (rule_.by_even_share) {
    const auto before = static_cast<float>(rows.slots() - 1);
    for (std::size_t s = 0; s < sums.size(); ++s) sums[s] += weights[s] * before;
    return;
  }
  if (rule_.variance == 0) return accumulate(GroupReduction::kSum, weights.data(), 1, sums);
  const std::span<float> squares = head.columns.column(rows.group + g, rows.slots());
  head.walked += 2 * squares.size_bytes();
  const auto count = static_cast<float>(rows.query.value + 1 - (context_.prompt - window()));
  for (std::size_t s = 0; s < sums.size(); ++s) {
    const float distance = weights[s] - sums[s];
    sums[s] += distance / count;
    squares[s] += distance * (weights[s] - sums[s]);
  }
}

// Of one query head, before pooling.
float WindowScoredPolicy::score_of(const Head& head, std::uint32_t g, SlotId slot) const {
  const float sum = head.columns.at(g, slot);
  if (rule_.variance == 0 || window() < 2) return sum;
  const double variance = static_cast<double>(head.columns.at(context_.group + g, slot)) / (window() - 1);
  return static_cast<float>(static_cast<double>(sum) + rule_.variance * variance);
}

// Turns the sums of the query heads into one score a slot, in the first column.
void WindowScoredPolicy::finish(Head& head, const AttentionRows& rows) const {
  head.tokens = rows.slots();
  const Candidates candidates{rows.positions, rows.query, window()};
  for (std::uint32_t s = 0; s < rows.slots(); ++s) {
    if (candidates.has(s)) head.order.emplace_back(s);
  }
  std::ranges::sort(head.order, {}, [&](SlotId slot) { return rows.positions[slot.value]; });
  const std::size_t tokens = head.order.size();
  head.pooled.resize(tokens);
  std::vector<float> sums(rows.group * tokens);
  for (std::uint32_t g = 0; g < rows.group; ++g) {
    const std::span<float> of_head = std::span(sums).subspan(g * tokens, tokens);
    for (std::size_t i = 0; i < tokens; ++i) of_head[i] = score_of(head, g, head.order[i]);
    if (!rule_.pool_first) continue;
    pool(of_head, head.pooled);
    std::ranges::copy(head.pooled, of_head.begin());
  }
  head.scored.assign(tokens, 0.0F);
  accumulate(rule_.reduction, sums.data(), rows.group, head.scored);
  if (!rule_.pool_first) {
    pool(head.scored, head.pooled);
    head.scored.swap(head.pooled);
  }
  for (std::size_t i = 0; i < tokens; ++i) head.columns.at(0, head.order[i]) = head.scored[i];
}

void WindowScoredPolicy::pool(std::span<const float> values, std::span<float> pooled) const {
  const std::size_t reach = rule_.kernel / 2;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t first = i < reach ? 0 : i - reach;
    const std::span<const float> near = values.subspan(first, std::min(values.size(), i + reach + 1) - first);
    if (rule_.max_pool) {
      pooled[i] = *std::ranges::max_element(near);
    } else {
      float sum = 0;
      for (const float x : near) sum += x;
      pooled[i] = sum / static_cast<float>(rule_.kernel);
    }
  }
}

void WindowScoredPolicy::evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) {
  Head& h = heads_[head.value];
  const std::span<float> scores = h.columns.column(0, static_cast<std::uint32_t>(request.positions.size()));
  const std::uint32_t recent = std::min(rule_.window, request.budget);
  lowest(scores, {request.positions, request.newest, recent}, request.excess, victims);
  h.walked += scores.size_bytes();
}

double WindowScoredPolicy::score_gap(HeadId head, SlotId a, SlotId b) const {
  const auto& scores = heads_[head.value].columns;
  return relative_gap(scores.at(0, a), scores.at(0, b));
}

void WindowScoredPolicy::move(HeadId head, std::span<const SlotMove> moves) { heads_[head.value].columns.move(moves); }

}  // namespace kvroof
