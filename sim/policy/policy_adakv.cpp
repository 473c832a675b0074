#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/policy/head_values.hpp"
#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

// AdaKV's code pools by the maximum of 7.
WindowRule rule_of(const PolicySpec& spec) {
  if (is_kvpress_rule(spec)) return window_rule(spec);
  return window_rule(spec, {.window = 32, .kernel = 7, .max_pool = true});
}

struct Options {
  explicit Options(const PolicySpec& spec)
      : floor(spec.number("floor", 0.2, 0, 1)),
        safeguard(spec.number("safeguard", 0.2, 0, 1)),
        normalize(spec.choice("normalize", {"no", "yes"}, "no") == "yes"),
        is_pyramid(spec.choice("layers", {"uniform", "pyramid"}, "uniform") == "pyramid"),
        pyramid{rule_of(spec).window, spec.count("beta", PyramidRule().beta, 1)},
        kvpress(is_kvpress_rule(spec)) {}

  double floor;
  double safeguard;
  bool normalize;
  bool is_pyramid;
  PyramidRule pyramid;
  bool kvpress;
};

double sum(std::span<const float> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// A score, larger than which all of the `count` best are or which ties with the last of them; count ≤ values.size().
std::vector<float> best(std::span<const float> values, std::size_t count) {
  std::vector<float> sorted(values.begin(), values.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count), sorted.end(), std::greater<>());
  sorted.resize(count);
  return sorted;
}

// One head's claim on the slots of the layer.
struct Claim {
  float score;
  std::uint32_t head;
  std::uint32_t rank;  // by position: of equals the younger wins, then the later head
};

// How many of the `count` highest claims each head has.
std::vector<std::uint32_t> winners(std::vector<Claim> claims, std::size_t count, std::size_t heads) {
  const auto end = claims.begin() + static_cast<std::ptrdiff_t>(std::min(count, claims.size()));
  std::nth_element(claims.begin(), end, claims.end(), [](const Claim& a, const Claim& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.rank != b.rank ? a.rank > b.rank : a.head > b.head;
  });
  std::vector<std::uint32_t> won(heads);
  for (auto claim = claims.begin(); claim != end; ++claim) ++won[claim->head];
  return won;
}

// SnapKV's scores; the heads of a layer share its budget according to where the highest scores lie.
class AdaKv final : public WindowScoredPolicy {
 public:
  AdaKv(const PolicySpec& spec, const PolicyContext& context)
      : WindowScoredPolicy(rule_of(spec), context), options_(spec) {
    const std::span<const float> weights = head_values(spec, context);
    if (weights.empty()) return;
    double total = 0;
    for (const auto& layer : spec.head_values) total += sum(layer);
    const double mean = total / static_cast<double>(spec.head_values.size() * weights.size());
    for (const float weight : weights) shares_.push_back(mean > 0 ? static_cast<double>(weight) / mean : 1);
  }

  void capacities(TokenPos, std::uint32_t budget, std::span<std::uint32_t> slots) override {
    if (budget <= window() || context().prompt < budget) return;
    if (!shares_.empty()) {
      for (std::size_t h = 0; h < slots.size(); ++h) {
        const double scored = std::min((budget - window()) * shares_[h], static_cast<double>(context().prompt));
        slots[h] = window() + static_cast<std::uint32_t>(std::nearbyint(scored));
      }
    } else if (options_.kvpress) {
      share_exactly(budget, slots);
    } else {
      share_with_floor(budget - window(), slots);
    }
  }

 private:
  // FFY0/AdaKV, AdaptiveSnapKVCluster.update_kv: in float32, rounding half to even, so that the sum over the heads may
  // miss heads · base by a few.
  void share_with_floor(std::uint32_t base, std::span<std::uint32_t> slots) const {
    if (options_.is_pyramid) base = pyramid_without_window(options_.pyramid, context(), base);
    const std::size_t tokens = scores(HeadId(0)).size();
    if (base > tokens) {
      std::ranges::fill(slots, window() + base);
      return;
    }
    std::vector<Claim> claims;
    for (std::uint32_t h = 0; h < slots.size(); ++h) {
      const std::span<const float> values = scores(HeadId(h));
      const double weight = options_.normalize ? sum(best(values, base)) / sum(values) : 1;
      for (std::uint32_t i = 0; i < tokens; ++i) {
        claims.push_back({static_cast<float>(static_cast<double>(values[i]) * weight), h, i});
      }
    }
    const auto floor = static_cast<float>(static_cast<std::uint32_t>(base * options_.floor));
    const auto adaptive = static_cast<float>(1 - options_.floor);
    const std::vector<std::uint32_t> won = winners(std::move(claims), std::size_t{base} * slots.size(), slots.size());
    for (std::size_t h = 0; h < slots.size(); ++h) {
      const float share = static_cast<float>(won[h]) * adaptive + floor;
      slots[h] = window() + static_cast<std::uint32_t>(std::nearbyint(share));
    }
  }

  // kvpress, AdaKVPress.compress: each head's best are safe, the window among them; then the lowest of the layer go.
  void share_exactly(std::uint32_t budget, std::span<std::uint32_t> slots) const {
    const auto safe = static_cast<std::uint32_t>(budget * options_.safeguard);
    const std::uint32_t scored_safe = safe > window() ? safe - window() : 0;
    std::vector<Claim> claims;
    for (std::uint32_t h = 0; h < slots.size(); ++h) {
      const std::span<const float> values = scores(HeadId(h));
      std::vector<std::uint32_t> ranks(values.size());
      std::iota(ranks.begin(), ranks.end(), 0U);
      std::nth_element(ranks.begin(), ranks.begin() + scored_safe, ranks.end(), [&](std::uint32_t a, std::uint32_t b) {
        return values[a] != values[b] ? values[a] > values[b] : a > b;
      });
      for (const std::uint32_t rank : std::span(ranks).subspan(scored_safe)) claims.push_back({values[rank], h, rank});
    }
    const std::size_t open = (std::size_t{budget} - window() - scored_safe) * slots.size();
    const std::vector<std::uint32_t> won = winners(std::move(claims), open, slots.size());
    for (std::size_t h = 0; h < slots.size(); ++h) slots[h] = window() + scored_safe + won[h];
  }

  Options options_;
  std::vector<double> shares_;  // by head: of the mean capacity beside the window; empty: scores decide
};

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = window_traits(spec, rule_of(spec));
  t.capacities = Capacities::kByHead;
  (void)Options(spec);
  return t;
}

constexpr ParamInfo kParams[] = {
    {"floor", "share", "0.2", "rule=repository: part of its even share that each head gets whatever its scores"},
    {"safeguard", "share", "0.2", "rule=kvpress: part of its even share, window included, that each head keeps"},
    {"normalize", "no | yes", "no",
     "rule=repository: weighs a head's scores by the share of their sum that its best ones hold"},
    {"layers", "uniform | pyramid", "uniform", "rule=repository: budgets of the layers, even or as pyramidkv has them"},
    {"beta", "count", "20", "how steep the pyramid is"},
    {"heads", "FILE", "none",
     "capacities in place of scores: a line a layer, a weight a KV head; beside the window k is their mean"},
    kRuledWindowParam,
    {"kernel", "odd count", "7", "neighbours over which scores are pooled; with rule=kvpress 5"},
    {"pool", "avg | max", "max", "how they are pooled; with rule=kvpress avg"},
    kGroupParam,
    kRuleParam,
};

}  // namespace

extern const PolicyInfo kAdaKvPolicy;
constinit const PolicyInfo kAdaKvPolicy = {
    .name = "adakv",
    .summary = "SnapKV's scores; heads share the budget of a layer by where its highest scores lie: k is their mean.",
    .source = "AdaKV: Feng et al., 2024; as its code and kvpress do",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<AdaKv>(spec, context);
    },
};

}  // namespace kvroof
