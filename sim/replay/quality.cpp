#include "sim/replay/quality.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {

QualityStats::QualityStats(std::uint64_t expected, std::uint32_t layers, bool with_error)
    : with_error_(with_error), layers_(layers), worst_count_(std::max<std::size_t>(1, expected / 100)) {
  worst_.reserve(worst_count_);
}

namespace {

std::optional<double> standard_error(const std::vector<SequenceQuality>& sequences, double SequenceQuality::* value) {
  const auto n = static_cast<double>(sequences.size());
  if (n < 2) return std::nullopt;
  double values = 0, mean = 0, squares = 0;
  for (const SequenceQuality& sequence : sequences) values += static_cast<double>(sequence.values);
  const auto share = [&](const SequenceQuality& s) { return static_cast<double>(s.values) / values; };
  for (const SequenceQuality& sequence : sequences) mean += share(sequence) * sequence.*value;
  for (const SequenceQuality& sequence : sequences) {
    const double off = share(sequence) * (sequence.*value - mean);
    squares += off * off;
  }
  return std::sqrt(n / (n - 1) * squares);
}

}  // namespace

std::optional<double> Quality::recall_standard_error() const {
  return standard_error(sequences, &SequenceQuality::recall_mean);
}

std::optional<double> Quality::output_error_standard_error() const {
  return output_error ? standard_error(sequences, &SequenceQuality::output_error) : std::nullopt;
}

void QualityStats::add(std::uint32_t layer, double recall, double output_error, std::uint32_t sequence) {
  if (sequences_.empty() || sequences_.back().id != sequence) sequences_.push_back({.id = sequence});
  ++sequences_.back().values;
  sequences_.back().recall_mean += recall;
  sequences_.back().output_error += output_error;
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
  for (SequenceQuality sequence : sequences_) {
    sequence.recall_mean /= static_cast<double>(sequence.values);
    sequence.output_error /= static_cast<double>(sequence.values);
    quality.sequences.push_back(sequence);
  }
  if (with_error_) quality.output_error = error / values;
  // The lowest are added in ascending order, so that the heap's layout does not matter.
  std::vector<double> worst = worst_;
  std::sort(worst.begin(), worst.end());
  for (const double value : worst) quality.recall_worst1 += value;
  quality.recall_worst1 /= static_cast<double>(worst.size());
  return quality;
}

}  // namespace kvroof
