#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultSinks = 4;
constexpr std::uint32_t kDefaultLag = 128;

// The prompt after the first `sinks` tokens is cut into partitions of `lag` tokens. Each partition's rows are scaled by
// the range of the next partition's channels; the standard deviation over a row's channels, softmaxed over the
// partition, is the row's score, and a token's is the mean of those of its k and its v. Without cross-scoring tokens
// are then ranked inside their partition. The first tokens, the last whole partition and what follows it stay before
// all others.
class Lagkv final : public PromptScorer {
 public:
  Lagkv(const PolicySpec& spec, const PolicyContext& context)
      : PromptScorer(spec, context),
        sinks_(spec.count("sinks", kDefaultSinks)),
        lag_(spec.count("lag", kDefaultLag, 1)),
        cross_(yes_or_no(spec, "cross", false)) {}

 private:
  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    HeadTensors& tensors = *request.tensors;
    const std::size_t n = order.size();
    scores.assign(n, 1.0F);
    tensors.read_keys(order, rows_);
    if (n < sinks_ + std::size_t{2} * lag_) {
      tensors.read_values(order, rows_);
      return by_recency(scores);
    }
    const std::size_t scored = (n - sinks_) / lag_ * lag_ - lag_;  // tokens in partitions that have a next one
    averages_.assign(scored, 0.0);
    add_half(tensors.key_width());
    tensors.count_flops(6.0 * static_cast<double>(rows_.size()));
    tensors.read_values(order, rows_);
    add_half(tensors.value_width());
    tensors.count_flops(6.0 * static_cast<double>(rows_.size()));
    for (std::size_t first = 0; first < scored; first += lag_) {
      const std::span<double> partition = std::span(averages_).subspan(first, lag_);
      if (!cross_) rank(partition);
      for (std::size_t i = 0; i < lag_; ++i) scores[sinks_ + first + i] = static_cast<float>(partition[i]);
    }
  }

  // A prompt too short for two partitions: the sinks and the youngest tokens stay.
  void by_recency(std::span<float> scores) const {
    const std::size_t n = scores.size();
    for (std::size_t i = sinks_; i < n; ++i) {
      scores[i] = static_cast<float>(i - sinks_) / static_cast<float>(n - sinks_);
    }
  }

  // Half of the scores that rows_ give is added to averages_.
  void add_half(std::size_t width) {
    for (std::size_t first = 0; first < averages_.size(); first += lag_) {
      find_range(sinks_ + first + lag_, width);
      double most = -1;
      for (std::size_t i = 0; i < lag_; ++i) {
        const double deviation = deviation_of(std::span(rows_).subspan((sinks_ + first + i) * width, width));
        partition_.resize(lag_);
        partition_[i] = deviation;
        most = std::max(most, deviation);
      }
      double sum = 0;
      for (double& x : partition_) sum += x = std::exp(x - most);
      for (std::size_t i = 0; i < lag_; ++i) averages_[first + i] += partition_[i] / sum / 2;
    }
  }

  // Least and largest of each channel in the partition that begins at this token.
  void find_range(std::size_t first, std::size_t width) {
    least_.assign(rows_.begin() + static_cast<std::ptrdiff_t>(first * width),
                  rows_.begin() + static_cast<std::ptrdiff_t>((first + 1) * width));
    largest_ = least_;
    for (std::size_t i = first + 1; i < first + lag_; ++i) {
      for (std::size_t c = 0; c < width; ++c) {
        least_[c] = std::min(least_[c], rows_[i * width + c]);
        largest_[c] = std::max(largest_[c], rows_[i * width + c]);
      }
    }
  }

  // Unbiased standard deviation over the channels of a row scaled to the range; a channel without range counts as 0.
  [[nodiscard]] double deviation_of(std::span<const float> row) {
    scaled_.resize(row.size());
    double mean = 0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double range = static_cast<double>(largest_[c]) - static_cast<double>(least_[c]);
      scaled_[c] = range > 0 ? (static_cast<double>(row[c]) - static_cast<double>(least_[c])) / range : 0;
      mean += scaled_[c];
    }
    mean /= static_cast<double>(row.size());
    double squares = 0;
    for (const double x : scaled_) squares += (x - mean) * (x - mean);
    return row.size() > 1 ? std::sqrt(squares / static_cast<double>(row.size() - 1)) : 0;
  }

  // Scores become ranks / lag, 0 for the lowest; of equals the younger has the higher rank.
  void rank(std::span<double> partition) {
    by_score_.resize(lag_);
    std::iota(by_score_.begin(), by_score_.end(), 0U);
    std::ranges::stable_sort(by_score_, {}, [&](std::uint32_t i) { return partition[i]; });
    for (std::uint32_t rank = 0; rank < lag_; ++rank) partition[by_score_[rank]] = static_cast<double>(rank) / lag_;
  }

  std::uint32_t sinks_;
  std::uint32_t lag_;
  bool cross_;
  std::vector<float> rows_, least_, largest_;
  std::vector<double> averages_, partition_, scaled_;
  std::vector<std::uint32_t> by_score_;
};

constexpr ParamInfo kParams[] = {
    {"sinks", "tokens", "4", "first tokens that stay before all others"},
    {"lag", "tokens", "128", "tokens of a partition; the last whole one and what follows it stay before all others"},
    {"cross", "yes | no", "no", "compare scores across partitions; no: ranks within each, so that all lose alike"},
    kKeyGroupParam,
};

// What always stays is tied at the top: age decides within it.
std::string advice(const PolicySpec& spec, std::uint32_t k) {
  const auto always = std::uint64_t{spec.count("sinks", kDefaultSinks)} + spec.count("lag", kDefaultLag, 1);
  if (k >= always) return {};
  return fmt::format(
      "sinks and the last partition are at least {} tokens, so that a budget of {} keeps the youngest of them", always,
      k);
}

}  // namespace

extern const PolicyInfo kLagkvPolicy;
constinit const PolicyInfo kLagkvPolicy = {
    .name = "lagkv",
    .summary =
        "Keeps the tokens of the prompt whose k and v vary most over their channels, measured by the range of the "
        "tokens that follow.",
    .source = "LagKV: Liang et al., 2025; as kvpress evicts, once after the prompt",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          (void)spec.count("sinks", kDefaultSinks);
          (void)spec.count("lag", kDefaultLag, 1);
          (void)yes_or_no(spec, "cross", false);
          return prompt_scorer_traits(spec, {.keys = true, .values = true});
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Lagkv>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
