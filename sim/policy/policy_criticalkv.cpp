#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "sim/policy/expected_attention.hpp"
#include "sim/policy/shared_slots.hpp"
#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

constexpr float kEpsilon = 1e-4F;  // of kvpress, added to the scores of the second stage
constexpr float kFirstStage = std::numeric_limits<float>::max();

bool is_expected(const PolicySpec& spec) {
  return spec.choice("inner", {"snapkv", "expected-attention"}, "snapkv") == "expected-attention";
}

double first_of(const PolicySpec& spec) { return spec.number("first", 0.5, 0, 1); }

double safeguard_of(const PolicySpec& spec) { return spec.number("safeguard", 0.2, 0, 1); }

bool is_adaptive(const PolicySpec& spec) {
  return spec.choice("capacities", {"even", "adaptive"}, "even") == "adaptive";
}

WindowRule rule_of(const PolicySpec& spec) {
  WindowRule rule = window_rule(spec);
  rule.pool_first = true;
  return rule;
}

// Two stages: the first tokens stay by the inner score, the others by (score + ε) · mean over the group of ‖W_O v‖₁.
// Tokens that the inner policy protects have the largest score of the layer; only the first stage keeps them for sure.
// With capacities=adaptive the heads first share the layer's slots by the inner scores, as adakv does.
class CriticalKv final : public WindowScoredPolicy {
 public:
  CriticalKv(const PolicySpec& spec, const PolicyContext& context)
      : WindowScoredPolicy(rule_of(spec), context),
        first_(first_of(spec)),
        safeguard_(safeguard_of(spec)),
        adaptive_(is_adaptive(spec)),
        budget_(spec.budget),
        heads_(context.storage_heads) {
    if (is_expected(spec)) expected_.emplace(spec, context);
  }

  void score_head(HeadId head, const EvictRequest& request) override {
    Head& h = heads_[head.value];
    slots_by_age(request.positions, h.order);
    if (expected_) {
      expected_->score(*request.tensors, h.order, h.scores);
    } else {
      take_window_scores(head, h);
    }
    for (const float score : h.scores) largest_ = std::max(largest_, score);
    find_projected_norms(head, *request.tensors);
  }

  void capacities(TokenPos, std::uint32_t budget, std::span<std::uint32_t> slots) override {
    if (heads_.front().order.empty()) return;  // no head holds more than the budget
    std::vector<std::span<const float>> all;
    for (Head& h : heads_) {
      protect(h);
      all.push_back(h.scores);
    }
    safe_ = safe_slots(safeguard_, budget);
    std::ranges::copy(share_slots(all, safe_, (budget - safe_) * slots.size()), slots.begin());
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const std::size_t n = h.order.size();
    protect(h);
    // The first stage keeps all but its lowest.
    std::vector<SlotId> later;
    drop_lowest(h.scores, 0, n, n - first_stage(request.budget, n), later);
    std::vector<float> second(n, kFirstStage);
    for (const SlotId i : later) second[i.value] = (h.scores[i.value] + kEpsilon) * h.norms[i.value];
    std::vector<SlotId> drop;
    drop_lowest(second, 0, n, request.excess, drop);
    for (const SlotId i : drop) victims.push_back(h.order[i.value]);
    std::vector<float> by_slot(n);
    for (std::size_t i = 0; i < n; ++i) by_slot[h.order[i].value] = second[i];
    replace_scores(head, n, [&](std::size_t slot) { return by_slot[slot]; });
  }

 private:
  struct Head {
    std::vector<SlotId> order;           // by age
    std::vector<float> scores, norms;    // in that order
  };

  // Protected tokens have the largest inner score of the layer and 1 more, which expected-attention's scores hold.
  void protect(Head& h) const {
    const std::size_t n = h.order.size();
    if (expected_) {
      std::fill_n(h.scores.begin(), expected_->protected_of(n), largest_);
    } else {
      std::fill_n(h.scores.rbegin(), std::min<std::size_t>(window(), n), largest_ + 1);
    }
  }

  // Of the tokens outside the window, as means over its rows and the group.
  void take_window_scores(HeadId head, Head& h) const {
    h.scores.assign(h.order.size(), 0.0F);
    const std::size_t count = h.order.size() - std::min<std::size_t>(window(), h.order.size());
    const std::span<const float> sums = scores(head);
    const float rows = static_cast<float>(window() * context().group);
    for (std::size_t i = 0; i < count; ++i) h.scores[i] = sums[sums.size() - count + i] / rows;
  }

  void find_projected_norms(HeadId head, HeadTensors& tensors) {
    Head& h = heads_[head.value];
    std::span<const float> values = expected_ ? expected_->values() : std::span<const float>();
    if (values.empty()) {
      tensors.read_values(h.order, values_);
      values = values_;
    }
    const std::size_t width = tensors.value_width();
    const RowsView& all = context().output_projection;
    const std::uint32_t group = context().group;
    h.norms.assign(h.order.size(), 0.0F);
    projected_.resize(all.count);
    for (std::uint32_t g = 0; g < group; ++g) {
      const std::size_t first = (std::size_t{head.value} * group + g) * width;
      const RowsView part{all.data + first * size_of(all.type), all.type, all.stride, width, all.count};
      for (std::size_t i = 0; i < h.norms.size(); ++i) {
        compute_logits(values.subspan(i * width, width), part, {}, projected_);
        double norm = 0;
        for (const float x : projected_) norm += static_cast<double>(std::abs(x));
        h.norms[i] += static_cast<float>(norm / group);
      }
    }
    tensors.count_flops(2.0 * static_cast<double>(values.size() * group * all.count));
  }

  // One token at least, unless the first stage is turned off; of a head with slots of its own what is safe there.
  [[nodiscard]] std::size_t first_stage(std::uint32_t budget, std::size_t n) const {
    if (adaptive_) {
      const float share = static_cast<float>(budget) * static_cast<float>(first_);  // in float32, as kvpress has it
      return std::max(safe_, static_cast<std::size_t>(share));
    }
    if (first_ == 0) return 0;
    const bool compression = budget_.kind == Budget::Kind::kCompression;
    const double tokens = compression ? (1 - budget_.value) * static_cast<double>(n) : budget;
    return std::clamp<std::size_t>(static_cast<std::size_t>(tokens * first_), 1, budget);
  }

  double first_;
  double safeguard_;
  bool adaptive_;
  Budget budget_;
  std::optional<ExpectedAttention> expected_;
  std::vector<Head> heads_;
  float largest_ = 0;     // inner score in the layer
  std::size_t safe_ = 0;  // slots of each head, where they share
  std::vector<float> values_, projected_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)first_of(spec);
  (void)safeguard_of(spec);
  const WindowRule rule = rule_of(spec);
  TensorNeed inner = ExpectedAttention::needs(spec);
  PolicyTraits t = window_traits(spec, rule);
  if (is_expected(spec)) {
    t.rows = RowNeed::kNone;
    t.last_rows = 0;
    t.needs_weights = false;
    t.query_head_sums = 0;
    t.flops_per_slot = 0;
    t.undoes_rotation = true;
  } else {
    inner = {};
  }
  inner.values = true;
  t.tensors = inner;
  t.scores_layer_first = true;
  t.needs = {HostNeed::kOutputProjection};
  if (is_adaptive(spec)) t.capacities = Capacities::kByHead;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"inner", "snapkv | expected-attention", "snapkv", "the policy whose scores decide first"},
    {"first", "share", "0.5", "part of k that stays by these scores alone: one token at least, with 0 none"},
    {"capacities", "even | adaptive", "even", "adaptive: heads share the budget of a layer first, as adakv's do"},
    {"safeguard", "share", "0.2", "capacities=adaptive: part of k that each head keeps"},
    kWindowParam,
    kKernelParam,
    kPoolParam,
    kFutureParam,
    kExpectedSinksParam,
    kCovarianceParam,
    {"vnorm", "yes | no", "yes", "multiply the scores of expected-attention by the norm of v; better without"},
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  if (is_expected(spec)) return {};
  return first_window_advice(rule_of(spec).window, k);
}

}  // namespace

extern const PolicyInfo kCriticalKvPolicy;
constinit const PolicyInfo kCriticalKvPolicy = {
    .name = "criticalkv",
    .summary = "Keeps half of k by the scores of another policy, the rest by these scores times what the layer's "
               "output projection makes of v.",
    .source = "CriticalKV: Feng et al., 2025; as kvpress evicts, once after the prompt",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      if (context.output_projection.data == nullptr) {
        throw usage_error(
            "policy criticalkv weighs v by the layer's output projection, which is not at hand here; expected a model "
            "whose heads have v rows of their own, in the engine or the folder that a replayed trace names");
      }
      return std::make_unique<CriticalKv>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
