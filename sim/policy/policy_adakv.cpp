#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sim/policy/expected_attention.hpp"
#include "sim/policy/head_values.hpp"
#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/prompt_scorer.hpp"
#include "sim/policy/shared_slots.hpp"
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
    std::vector<std::vector<float>> weighted(slots.size());
    for (std::uint32_t h = 0; h < slots.size(); ++h) {
      const std::span<const float> values = scores(HeadId(h));
      const double all = sum(values);  // 0 where the window pays nothing to the tokens before it
      const double weight = options_.normalize && all > 0 ? sum(best(values, base)) / all : 1;
      for (const float value : values) weighted[h].push_back(static_cast<float>(static_cast<double>(value) * weight));
    }
    const auto floor = static_cast<float>(static_cast<std::uint32_t>(base * options_.floor));
    const auto adaptive = static_cast<float>(1 - options_.floor);
    const std::vector<std::span<const float>> spans(weighted.begin(), weighted.end());
    const std::vector<std::uint32_t> won = share_slots(spans, 0, std::size_t{base} * slots.size());
    for (std::size_t h = 0; h < slots.size(); ++h) {
      const float share = static_cast<float>(won[h]) * adaptive + floor;
      slots[h] = window() + static_cast<std::uint32_t>(std::nearbyint(share));
    }
  }

  // kvpress, AdaKVPress.compress: each head's best are safe, the window among them; then the lowest of the layer go.
  void share_exactly(std::uint32_t budget, std::span<std::uint32_t> slots) const {
    const std::size_t safe = safe_slots(options_.safeguard, budget);
    const std::size_t scored_safe = safe > window() ? safe - window() : 0;
    std::vector<std::span<const float>> all;
    for (std::uint32_t h = 0; h < slots.size(); ++h) all.push_back(scores(HeadId(h)));
    const std::size_t open = (std::size_t{budget} - window() - scored_safe) * slots.size();
    const std::vector<std::uint32_t> shared = share_slots(all, scored_safe, open);
    for (std::size_t h = 0; h < slots.size(); ++h) slots[h] = window() + shared[h];
  }

  Options options_;
  std::vector<double> shares_;  // by head: of the mean capacity beside the window; empty: scores decide
};

std::string inner_of(const PolicySpec& spec) {
  return spec.choice("inner", {"snapkv", "expected-attention", "knorm", "keydiff"}, "snapkv");
}

constexpr ParamInfo kInnerSinksParam = {"sinks", "tokens", "4",
                                        "the first tokens, which inner=expected-attention scores before all others"};
constexpr ParamInfo kInnerParams[] = {kFutureParam, kInnerSinksParam, kCovarianceParam, kVnormParam, kEpsilonParam};

// The inner policy with those of its parameters that adakv has as well.
PolicySpec inner_spec(const PolicySpec& spec) {
  PolicySpec inner;
  inner.name = inner_of(spec);
  inner.budget = spec.budget;
  const std::span<const ParamInfo> takes = policy_info(inner.name).params;
  for (const ParamInfo& param : kInnerParams) {
    const auto value = spec.find(param.name);
    const bool taken = std::ranges::find(takes, param.name, &ParamInfo::name) != takes.end();
    if (value && taken) inner.params.emplace_back(param.name, *value);
  }
  return inner;
}

// What other scores than those of a window leave no meaning to.
void check_inner(const PolicySpec& spec) {
  const std::string inner = inner_of(spec);
  if (spec.find("rule") == "repository") {
    throw usage_error(fmt::format("policy adakv: inner={}: the method's own code has scores of a window alone; "
                                  "expected rule=kvpress or none, found rule=repository", inner));
  }
  if (spec.find("heads").value_or("none") != "none") {
    throw usage_error(fmt::format("policy adakv: inner={} shares slots by scores and heads= by a file; give one of "
                                  "them", inner));
  }
  if (spec.find("group") == "max") {
    throw usage_error(fmt::format("policy adakv: inner={}: group=max is of inner=snapkv; expected mean or none",
                                  inner));
  }
}

// The same, as kvpress does, over the scores that another policy has for all tokens of a prompt.
class AdaKvOverScorer final : public StatelessPolicy {
 public:
  AdaKvOverScorer(const PolicySpec& spec, const PolicyContext& context)
      : safeguard_(Options(spec).safeguard),
        inner_(policy_info(inner_of(spec)).make(inner_spec(spec), context)),
        scorer_(dynamic_cast<PromptScorer*>(inner_.get())),
        heads_(context.storage_heads) {
    check(scorer_ != nullptr, "an inner policy scores all tokens of a prompt");
  }

  void score_head(HeadId head, const EvictRequest& request) override {
    ScoresByAge& h = heads_[head.value];
    h.begin(request.positions);
    scorer_->score_all(head, request, h.order(), h.scores);
    for (const float score : h.scores) largest_ = std::max(largest_, score);
  }

  void capacities(TokenPos, std::uint32_t budget, std::span<std::uint32_t> slots) override {
    if (heads_.front().scores.empty()) return;  // no head holds more than the budget
    std::vector<std::span<const float>> all;
    for (ScoresByAge& h : heads_) {
      // Protected tokens have the largest score of the layer, whichever head they are of.
      std::fill_n(h.scores.begin(), scorer_->protected_of(h.scores.size()), largest_);
      all.push_back(h.scores);
    }
    const std::size_t safe = safe_slots(safeguard_, budget);
    std::ranges::copy(share_slots(all, safe, (budget - safe) * slots.size()), slots.begin());
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    heads_[head.value].give_up_lowest(request.excess, victims);
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    return heads_[head.value].gap(a, b);
  }

 private:
  double safeguard_;
  std::unique_ptr<EvictionPolicy> inner_;
  PromptScorer* scorer_;  // that policy
  std::vector<ScoresByAge> heads_;
  float largest_ = std::numeric_limits<float>::lowest();  // score in the layer
};

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = window_traits(spec, rule_of(spec));
  const Options options(spec);
  (void)ExpectedAttention::needs(spec);
  if (inner_of(spec) != "snapkv") {
    check_inner(spec);
    t = policy_info(inner_of(spec)).traits(inner_spec(spec));
    t.unit = group_unit(spec);
    t.scores_layer_first = true;
  }
  t.capacities = Capacities::kByHead;
  t.shares_by_depth = options.is_pyramid && !options.kvpress && inner_of(spec) == "snapkv";
  return t;
}

constexpr ParamInfo kParams[] = {
    {"inner", "snapkv | expected-attention | knorm | keydiff", "snapkv",
     "the policy whose scores decide; with another than snapkv heads share as with rule=kvpress"},
    {"floor", "share", "0.2", "rule=repository: part of its even share that each head gets whatever its scores"},
    {"safeguard", "share", "0.2", "rule=kvpress: part of its even share, window included, that each head keeps"},
    {"normalize", "no | yes", "no",
     "rule=repository: weighs a head's scores by the share of their sum that its best ones hold"},
    {"layers", "uniform | pyramid", "uniform",
     "rule=repository: budgets of the layers, even or falling as pyramidkv's, also of short prompts"},
    {"beta", "count", "20", "how steep the pyramid is"},
    {"heads", "FILE", "none",
     "capacities in place of scores: a line a layer, a weight a KV head; beside the window k is their mean"},
    kRuledWindowParam,
    {"kernel", "odd count", "7", "neighbours over which scores are pooled; with rule=kvpress 5", true},
    {"pool", "avg | max", "max", "how they are pooled; with rule=kvpress avg", true},
    kGroupParam,
    kRuleParam,
    kFutureParam,
    kInnerSinksParam,
    kCovarianceParam,
    kVnormParam,
    kEpsilonParam,
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  if (inner_of(spec) != "snapkv") return {};
  return full_window_advice(rule_of(spec).window, k);
}

}  // namespace

extern const PolicyInfo kAdaKvPolicy;
constinit const PolicyInfo kAdaKvPolicy = {
    .name = "adakv",
    .summary = "SnapKV's scores, or another policy's; heads share the budget of a layer by where its highest scores "
               "lie: k is their mean.",
    .source = "AdaKV: Feng et al., 2024; as its code and kvpress do",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      if (inner_of(spec) != "snapkv") return std::make_unique<AdaKvOverScorer>(spec, context);
      return std::make_unique<AdaKv>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
