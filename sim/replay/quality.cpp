#include "sim/replay/quality.hpp"

#include <algorithm>

namespace kvroof {

QualityStats::QualityStats(std::uint64_t expected, std::uint32_t layers, bool with_error)
    : with_error_(with_error), layers_(layers), worst_count_(std::max<std::size_t>(1, expected / 100)) {
  worst_.reserve(worst_count_);
}

void QualityStats::add(std::uint32_t layer, double recall, double output_error) {
  Layer& sums = layers_[layer];
  ++sums.count;
  sums.recall += recall;
  sums.error += output_error;
  if (worst_.size() < worst_count_) {
    worst_.push_back(recall);
    std::push_heap(worst_.begin(), worst_.end());
  } else if (recall < worst_.front()) {
    std::pop_heap(worst_.begin(), worst_.end());
    worst_.back() = recall;
    std::push_heap(worst_.begin(), worst_.end());
  }
}

std::optional<Quality> QualityStats::finish() const {
  Quality quality;
  double recall = 0;
  double error = 0;
  for (const Layer& layer : layers_) {
    quality.values += layer.count;
    recall += layer.recall;
    error += layer.error;
    const double count = std::max(1.0, static_cast<double>(layer.count));
    quality.layers.push_back({layer.recall / count, layer.error / count});
  }
  if (quality.values == 0) return std::nullopt;
  const auto values = static_cast<double>(quality.values);
  quality.recall_mean = recall / values;
  if (with_error_) quality.output_error = error / values;
  // The lowest are added in ascending order, so that the heap's layout does not matter.
  std::vector<double> worst = worst_;
  std::sort(worst.begin(), worst.end());
  for (const double value : worst) quality.recall_worst1 += value;
  quality.recall_worst1 /= static_cast<double>(worst.size());
  return quality;
}

}  // namespace kvroof
