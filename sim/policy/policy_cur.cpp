#include <algorithm>

#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultSinks = 4;
constexpr std::uint32_t kDefaultWindow = 16;

// The score of a token is the product of its shares of Σ‖k‖² and of Σ‖v‖² in its window of tokens: approximate leverage
// scores. The first tokens stay.
class Cur final : public PromptScorer {
 public:
  Cur(const PolicySpec& spec, const PolicyContext& context)
      : PromptScorer(spec, context),
        sinks_(spec.count("sinks", kDefaultSinks)),
        window_(spec.count("window", kDefaultWindow)) {}

 private:
  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    HeadTensors& tensors = *request.tensors;
    tensors.read_keys(order, rows_);
    leverage(tensors.key_width(), of_keys_);
    tensors.count_flops(2.0 * static_cast<double>(rows_.size()));
    tensors.read_values(order, rows_);
    leverage(tensors.value_width(), of_values_);
    tensors.count_flops(2.0 * static_cast<double>(rows_.size()));
    scores.resize(order.size());
    double sum = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) sum += of_keys_[i] * of_values_[i];
    for (std::size_t i = 0; i < scores.size(); ++i) {
      // A share is at most 1, so that the first tokens stand above all others.
      const double share = sum > 0 ? of_keys_[i] * of_values_[i] / sum : 0;
      scores[i] = i < sinks_ ? 2.0F : static_cast<float>(share);
    }
  }

  // Squared lengths of rows_, each over the sum of its window.
  void leverage(std::size_t width, std::vector<double>& shares) const {
    const std::size_t n = rows_.size() / width;
    shares.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::span<const float> row = std::span(rows_).subspan(i * width, width);
      shares[i] = dot_of(row, row);
    }
    const std::size_t window = window_ > 0 ? window_ : n;
    for (std::size_t first = 0; first < n; first += window) {
      const std::size_t last = std::min(first + window, n);
      double sum = 0;
      for (std::size_t i = first; i < last; ++i) sum += shares[i];
      for (std::size_t i = first; i < last; ++i) shares[i] = sum > 0 ? shares[i] / sum : 0;
    }
  }

  std::uint32_t sinks_;
  std::uint32_t window_;
  std::vector<float> rows_;
  std::vector<double> of_keys_, of_values_;
};

constexpr ParamInfo kParams[] = {
    {"sinks", "tokens", "4", "first tokens that stay before all others"},
    {"window", "tokens", "16", "squared lengths are shares of their sum over so many tokens; 0: over the whole prompt"},
    kChunkParam,
    kKeyGroupParam,
};

}  // namespace

extern const PolicyInfo kCurPolicy;
constinit const PolicyInfo kCurPolicy = {
    .name = "cur",
    .summary =
        "Keeps the tokens of the prompt with the largest product of squared key and value lengths, each as a share of "
        "its neighbourhood.",
    .source = "CurDKV: Sengupta et al., NeurIPS 2025; as kvpress evicts, once after the prompt",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          (void)spec.count("sinks", kDefaultSinks);
          (void)spec.count("window", kDefaultWindow);
          return prompt_scorer_traits(spec, {.keys = true, .values = true});
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Cur>(spec, context);
    },
};

}  // namespace kvroof
