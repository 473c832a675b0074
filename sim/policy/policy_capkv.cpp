#include <algorithm>
#include <cmath>

#include "sim/policy/future_queries.hpp"
#include "sim/policy/prompt_scorer.hpp"
#include "sim/policy/ridged_gram.hpp"

namespace kvroof {
namespace {

constexpr double kDefaultTau = 5;
constexpr double kMostTau = 30;  // exp(−2 tau) is still a float
constexpr double kEpsilon = 1e-6;  // of kvpress: no weight in the matrix is 0

double tau_of(const PolicySpec& spec) { return spec.number("tau", kDefaultTau, 0, kMostTau); }

double length_of(std::span<const double> row) {
  double squares = 0;
  for (const double x : row) squares += x * x;
  return std::sqrt(squares);
}

// For each query head, with w_j = exp(τ · cos(k_j, Rμ)) over its largest,
//   s_j = w_j · v_jᵀ (1 + Σ_i w_i v_i v_iᵀ)⁻¹ v_j
// over the tokens after the first; the score is the mean over the group. The first tokens stay before all others.
class CapKv final : public PromptScorer {
 public:
  CapKv(const PolicySpec& spec, const PolicyContext& context)
      : PromptScorer(spec, context), tau_(tau_of(spec)), group_(context.group), queries_(spec, context, false) {}

  [[nodiscard]] std::size_t protected_of(std::size_t n) const override { return queries_.first_of(n); }

 private:
  // The queries that are expected are the whole prompt's.
  [[nodiscard]] bool scores_chunks_apart() const override { return false; }

  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    HeadTensors& tensors = *request.tensors;
    const std::size_t first = protected_of(order.size());
    queries_.read(tensors);
    tensors.read_keys(order, keys_);
    tensors.read_values(order, values_);
    keys_.erase(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(first * tensors.key_width()));
    values_.erase(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(first * tensors.value_width()));
    const std::size_t n = order.size() - first;
    sums_.assign(n, 0.0);
    for (std::uint32_t g = 0; g < group_; ++g) add_capacities(g, tensors.key_width(), tensors.value_width());
    const auto heads = static_cast<double>(group_);
    tensors.count_flops(2 * static_cast<double>(queries_.elements()) + 4 * heads * static_cast<double>(keys_.size()) +
                        heads * RidgedGram::flops(n, tensors.value_width()));
    const double largest = *std::ranges::max_element(sums_);
    scores.assign(first, static_cast<float>(largest / heads) + 1);
    for (const double sum : sums_) scores.push_back(static_cast<float>(sum / heads));
  }

  void add_capacities(std::uint32_t g, std::size_t k_width, std::size_t v_width) {
    find_weights(g, k_width);
    scaled_.resize(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i) {
      scaled_[i] = static_cast<double>(values_[i]) * std::sqrt(weights_[i / v_width] + kEpsilon);
    }
    gram_.factorise(scaled_, v_width, 1.0);
    scaled_.assign(values_.begin(), values_.end());
    for (std::size_t j = 0; j < sums_.size(); ++j) {
      sums_[j] += weights_[j] * gram_.leverage_of(std::span(scaled_).subspan(j * v_width, v_width));
    }
  }

  // Where no query is left beside the first tokens', all weights are alike.
  void find_weights(std::uint32_t g, std::size_t width) {
    weights_.assign(sums_.size(), 0.0);
    if (!queries_.empty()) {
      queries_.find(g);
      const double length = length_of(queries_.mean());
      for (std::size_t j = 0; j < weights_.size(); ++j) {
        const std::span<const float> key = std::span(keys_).subspan(j * width, width);
        double product = 0;
        for (std::size_t c = 0; c < width; ++c) product += queries_.mean()[c] * static_cast<double>(key[c]);
        const double lengths = length * norm_of(key);
        weights_[j] = lengths > 0 ? tau_ * product / lengths : 0;
      }
    }
    const double largest = *std::ranges::max_element(weights_);
    for (double& w : weights_) w = std::exp(w - largest);
  }

  double tau_;
  std::uint32_t group_;
  FutureQueries queries_;
  RidgedGram gram_;
  std::vector<float> keys_, values_;
  std::vector<double> weights_, scaled_, sums_;
};

constexpr ParamInfo kParams[] = {
    {"tau", "number", "5", "how much more tokens weigh whose keys point where later queries will"},
    kFutureParam,
    kExpectedSinksParam,
    kChunkParam,
    kKeyGroupParam,
};

}  // namespace

extern const PolicyInfo kCapKvPolicy;
constinit const PolicyInfo kCapKvPolicy = {
    .name = "capkv",
    .summary = "Keeps the tokens of the prompt whose v the others cannot stand for, weighed by how well k points where "
               "later queries will.",
    .source = "CapKV: 2026 (arXiv:2604.25975); as kvpress evicts, once after the prompt",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          (void)tau_of(spec);
          FutureQueries::validate(spec);
          PolicyTraits t = prompt_scorer_traits(
              spec, {.keys = true, .values = true, .queries = TensorNeed::kWholePrompt});
          t.undoes_rotation = true;
          return t;
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<CapKv>(spec, context);
    },
};

}  // namespace kvroof
