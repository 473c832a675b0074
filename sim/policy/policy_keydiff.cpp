#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {
namespace {

// The score of a token is −cos(k, mean of the normalised keys): keys unlike the others stay. With block=, the first k
// tokens meet the next `block` ones, the lowest of these go, and so on: the mean is that of the keys at hand.
class Keydiff final : public PromptScorer {
 public:
  Keydiff(const PolicySpec& spec, const PolicyContext& context)
      : PromptScorer(spec, context), block_(spec.count("block", 0)) {}

 private:
  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    HeadTensors& tensors = *request.tensors;
    width_ = tensors.key_width();
    tensors.read_keys(order, keys_);
    normalise();
    kept_.resize(order.size());
    std::iota(kept_.begin(), kept_.end(), 0U);
    scores.resize(order.size());
    if (block_ == 0) {
      score_kept(scores);
    } else {
      score_blocks(request.budget, scores);
    }
    tensors.count_flops(flops_);
  }

  void normalise() {
    flops_ = 4.0 * static_cast<double>(keys_.size());
    for (std::size_t at = 0; at < keys_.size(); at += width_) {
      const std::span<float> key = std::span(keys_).subspan(at, width_);
      const double norm = norm_of(key);
      for (float& x : key) x = norm > 0 ? static_cast<float>(static_cast<double>(x) / norm) : 0;
    }
  }

  // Of the tokens in kept_, whose rows in keys_ have the length 1.
  void score_kept(std::span<float> scores) {
    sum_.assign(width_, 0.0);
    for (const std::uint32_t token : kept_) {
      for (std::size_t i = 0; i < width_; ++i) sum_[i] += static_cast<double>(keys_[token * width_ + i]);
    }
    const double length = std::sqrt(std::inner_product(sum_.begin(), sum_.end(), sum_.begin(), 0.0));
    for (const std::uint32_t token : kept_) {
      double cosine = 0;
      for (std::size_t i = 0; i < width_; ++i) cosine += static_cast<double>(keys_[token * width_ + i]) * sum_[i];
      scores[token] = static_cast<float>(length > 0 ? -cosine / length : 0);
    }
    flops_ += 4.0 * static_cast<double>(kept_.size() * width_);
  }

  // Tokens that went in an earlier block end below all others.
  void score_blocks(std::size_t budget, std::vector<float>& scores) {
    const std::size_t n = kept_.size();
    kept_.resize(std::min(budget, n));
    for (std::size_t first = kept_.size(); first < n; first += block_) {
      for (std::size_t i = first; i < std::min(first + block_, n); ++i) kept_.push_back(static_cast<std::uint32_t>(i));
      score_kept(scores);
      std::ranges::sort(kept_, [&](std::uint32_t a, std::uint32_t b) {
        return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
      });
      for (std::size_t i = budget; i < kept_.size(); ++i) scores[kept_[i]] = kGone;
      kept_.resize(std::min(budget, kept_.size()));
    }
  }

  static constexpr float kGone = -2;  // below every cosine

  std::uint32_t block_;
  std::size_t width_ = 0;
  std::vector<float> keys_;
  std::vector<double> sum_;
  std::vector<std::uint32_t> kept_;
  double flops_ = 0;
};

constexpr ParamInfo kParams[] = {
    {"block", "tokens", "0",
     "work through the prompt in blocks of so many tokens: k tokens meet the next block, the lowest of both go; 0: all "
     "at once"},
    kChunkParam,
    kLaterParam,
    kKeyGroupParam,
};

PolicyTraits traits(const PolicySpec& spec) {
  if (spec.count("block", 0) > 0 && spec.count("chunk", 0) > 0) {
    throw usage_error("policy keydiff: block and chunk are two ways through a prompt; give one of them");
  }
  return prompt_scorer_traits(spec, {.keys = true});
}

}  // namespace

extern const PolicyInfo kKeydiffPolicy;
constinit const PolicyInfo kKeydiffPolicy = {
    .name = "keydiff",
    .summary = "Keeps the tokens of the prompt whose keys point furthest away from the mean direction of all keys.",
    .source = "KeyDiff: Park et al., NeurIPS 2025; as kvpress evicts, once after the prompt; with when, also while "
              "decoding",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Keydiff>(spec, context);
    },
};

}  // namespace kvroof
