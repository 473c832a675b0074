#include <cmath>
#include <optional>

#include "sim/attention/attention.hpp"
#include "sim/attention/sums.hpp"
#include "sim/policy/attention_sums.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRecent = {true, 0.5};
constexpr double kDefaultSmoothing = 0.7;

// A fixed threshold; nothing: it follows the similarities.
std::optional<double> fixed_threshold(const PolicySpec& spec) {
  if (spec.find("threshold").value_or("adaptive") == "adaptive") return std::nullopt;
  return spec.number("threshold", 1, 0, 1);
}

double smoothing_of(const PolicySpec& spec) { return spec.number("smoothing", kDefaultSmoothing, 0, 1); }

// H2O chooses what goes; each token that goes is merged into the survivor whose key has the largest cosine with its
// own.
class D2o final : public EvictionPolicy {
 public:
  D2o(const PolicySpec& spec, const PolicyContext& context)
      : inner_(tokens_or_share(spec, "recent", kDefaultRecent), group_reduction(spec), 1, 1, context),
        threshold_(fixed_threshold(spec)),
        smoothing_(smoothing_of(spec)),
        head_thresholds_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos position) override { inner_.admit(head, slot, position); }
  void observe(HeadId head, const AttentionRows& rows) override { inner_.observe(head, rows); }
  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    inner_.evict(head, request, victims);
  }
  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    return inner_.score_gap(head, a, b);
  }
  void move(HeadId head, std::span<const SlotMove> moves) override { inner_.move(head, moves); }
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override {
    return inner_.walked_state_bytes(head);
  }

  void merge(HeadId head, const EvictRequest& request, std::span<const SlotId> victims,
             std::vector<SlotMerge>& merges) override {
    read_keys(request);
    find_nearest(request, victims);
    const double threshold = threshold_of(head);
    // The weights of all that join a survivor are e^similarity and its own is e^1, out of their sum.
    sums_.assign(request.positions.size(), std::exp(1.0));
    for (std::size_t i = 0; i < victims.size(); ++i) {
      const auto [to, similarity] = nearest_[i];
      if (similarity < threshold) continue;
      const double before = sums_[to.value];
      const double weight = std::exp(similarity);
      const double after = sums_[to.value] = before + weight;
      merges.push_back({victims[i], to, static_cast<float>(before / after), static_cast<float>(weight / after)});
    }
  }

 private:
  struct Nearest {
    SlotId slot;
    double similarity;
  };

  void read_keys(const EvictRequest& request) {
    order_.clear();
    for (std::uint32_t s = 0; s < request.positions.size(); ++s) order_.emplace_back(s);
    request.tensors->read_keys(order_, keys_);
    const std::size_t width = request.tensors->key_width();
    for (std::size_t s = 0; s < order_.size(); ++s) {
      const std::span<float> key = std::span(keys_).subspan(s * width, width);
      const double norm = norm_of(key);
      for (float& x : key) x = norm > 0 ? static_cast<float>(static_cast<double>(x) / norm) : 0.0F;
    }
  }

  // Of equals the oldest.
  void find_nearest(const EvictRequest& request, std::span<const SlotId> victims) {
    const std::size_t width = request.tensors->key_width();
    const auto slots = static_cast<std::uint32_t>(request.positions.size());
    goes_.assign(slots, false);
    for (const SlotId victim : victims) goes_[victim.value] = true;
    const RowsView keys{reinterpret_cast<const std::byte*>(keys_.data()), DType::kF32, width, width, slots};
    cosines_.resize(slots);
    nearest_.clear();
    for (const SlotId victim : victims) {
      compute_logits(std::span(keys_).subspan(victim.value * width, width), keys, {}, cosines_);
      std::uint32_t best = slots;
      for (std::uint32_t s = 0; s < slots; ++s) {
        if (goes_[s]) continue;
        const bool nearer = best == slots || cosines_[s] > cosines_[best] ||
                            (cosines_[s] == cosines_[best] && request.positions[s] < request.positions[best]);
        if (nearer) best = s;
      }
      nearest_.push_back({SlotId(best), static_cast<double>(cosines_[best])});
    }
    request.tensors->count_flops(2.0 * static_cast<double>(width) * slots * static_cast<double>(1 + victims.size()));
  }

  // The first threshold is the mean similarity of what goes then; later ones follow the similarities.
  double threshold_of(HeadId head) {
    if (threshold_) return *threshold_;
    double mean = 0;
    for (const Nearest& n : nearest_) mean += n.similarity / static_cast<double>(nearest_.size());
    std::optional<double>& threshold = head_thresholds_[head.value];
    threshold = threshold ? smoothing_ * mean + (1 - smoothing_) * *threshold : mean;
    return *threshold;
  }

  AttentionSums inner_;
  std::optional<double> threshold_;
  double smoothing_;
  std::vector<std::optional<double>> head_thresholds_;
  // Of one eviction.
  std::vector<SlotId> order_;
  std::vector<float> keys_, cosines_;  // keys of unit length, [slots, k_width]
  std::vector<bool> goes_;
  std::vector<Nearest> nearest_;
  std::vector<double> sums_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)fixed_threshold(spec);
  (void)smoothing_of(spec);
  PolicyTraits t = attention_sums_traits(spec, kDefaultRecent);
  t.tensors.keys = true;
  t.merges = true;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"recent", "tokens | share of k", "0.5", "most recent tokens, which always stay; the others are heavy hitters"},
    {"threshold", "adaptive | share", "adaptive",
     "the cosine from which on a token is merged and not lost; adaptive: it follows the cosines of what goes"},
    {"smoothing", "share", "0.7", "weight of the newest cosine in the adaptive threshold"},
    kGroupParam,
    kWhenParam,
    kLayersParam,
};

}  // namespace

extern const PolicyInfo kD2oPolicy;
constinit const PolicyInfo kD2oPolicy = {
    .name = "d2o",
    .summary = "Evicts as h2o does, and merges what goes into the token that stays with the most similar key.",
    .source = "D2O: Wan et al., 2024; its merging of tokens, without its budgets of layers",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<D2o>(spec, context);
    },
};

}  // namespace kvroof
