#include <algorithm>
#include <cmath>

#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {
namespace {

constexpr int kMostIterations = 5000;
constexpr double kSettled = 1e-20;  // squared distance between two iterations

double product_of(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The direction in which the rows of a matrix are longest, found by power iteration from their mean on, of length 1.
class MainDirection {
 public:
  // Row i is `width` elements at rows + i · stride. It points where the rows do in the mean.
  std::span<const double> find(const float* rows, std::size_t count, std::size_t stride, std::size_t width) {
    gram_.assign(width * width, 0.0);
    mean_.assign(width, 0.0);
    for (std::size_t i = 0; i < count; ++i) {
      const float* row = rows + i * stride;
      for (std::size_t r = 0; r < width; ++r) {
        const auto x = static_cast<double>(row[r]);
        mean_[r] += x;
        for (std::size_t c = 0; c < width; ++c) gram_[r * width + c] += x * static_cast<double>(row[c]);
      }
    }
    start(width);
    for (int i = 0; i < kMostIterations && !step(width); ++i) {}
    if (product_of(direction_, mean_) < 0) {
      for (double& x : direction_) x = -x;
    }
    return direction_;
  }

 private:
  // The mean may be 0, or stand at a right angle to what is sought: a little of the longest column goes with it.
  void start(std::size_t width) {
    std::size_t longest = 0;
    for (std::size_t i = 1; i < width; ++i) {
      if (gram_[i * width + i] > gram_[longest * width + longest]) longest = i;
    }
    direction_ = mean_;
    const double length = std::sqrt(product_of(mean_, mean_));
    direction_[longest] += length > 0 ? length / 16 : 1;
    normalise(direction_);
  }

  // Whether it has settled.
  bool step(std::size_t width) {
    next_.resize(width);
    for (std::size_t r = 0; r < width; ++r) {
      next_[r] = product_of(std::span<const double>(gram_).subspan(r * width, width), direction_);
    }
    if (!normalise(next_)) return true;
    double moved = 0;
    for (std::size_t r = 0; r < width; ++r) moved += (next_[r] - direction_[r]) * (next_[r] - direction_[r]);
    direction_.swap(next_);
    return moved < kSettled;
  }

  static bool normalise(std::vector<double>& row) {
    const double length = std::sqrt(product_of(row, row));
    if (!(length > 0)) return false;
    for (double& x : row) x /= length;
    return true;
  }

  std::vector<double> gram_, mean_, direction_, next_;
};

// A token's score is k · f, where the filter f of a head is the mean over its query heads of the main directions of
// their queries, each pointing where the queries do.
class QFilters final : public PromptScorer {
 public:
  QFilters(const PolicySpec& spec, const PolicyContext& context) : PromptScorer(spec, context), context_(context) {}

 private:
  // The filter is made of the whole prompt's queries.
  [[nodiscard]] bool scores_chunks_apart() const override { return false; }

  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    HeadTensors& tensors = *request.tensors;
    const std::size_t width = tensors.key_width();
    tensors.read_queries(context_.prompt, queries_);
    tensors.read_keys(order, keys_);
    find_filter(width);
    scores.resize(order.size());
    for (std::size_t j = 0; j < order.size(); ++j) {
      double sum = 0;
      for (std::size_t c = 0; c < width; ++c) sum += filter_[c] * static_cast<double>(keys_[j * width + c]);
      scores[j] = static_cast<float>(sum);
    }
    // Filters are made once for a model; what a prompt costs is the product of its keys with them.
    tensors.count_flops(2 * static_cast<double>(keys_.size()));
  }

  void find_filter(std::size_t width) {
    const std::size_t stride = context_.group * width;
    filter_.assign(width, 0.0);
    for (std::uint32_t g = 0; g < context_.group; ++g) {
      const auto direction = main_.find(queries_.data() + g * width, queries_.size() / stride, stride, width);
      for (std::size_t c = 0; c < width; ++c) filter_[c] += direction[c] / context_.group;
    }
  }

  PolicyContext context_;
  MainDirection main_;
  std::vector<float> queries_, keys_;
  std::vector<double> filter_;
};

constexpr ParamInfo kParams[] = {kChunkParam, kKeyGroupParam};

}  // namespace

extern const PolicyInfo kQFiltersPolicy;
constinit const PolicyInfo kQFiltersPolicy = {
    .name = "qfilters",
    .summary = "Keeps the tokens of the prompt whose keys reach furthest in the main direction of the queries.",
    .source = "Q-Filters: Godey et al., 2025; filters made of the prompt's own queries in place of a calibration's",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          return prompt_scorer_traits(spec, {.keys = true, .queries = TensorNeed::kWholePrompt});
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<QFilters>(spec, context);
    },
};

}  // namespace kvroof
