// Quality of what a policy kept: attention recall (mean and worst 1 %) and output error.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace kvroof {

// Recall: the exact attention (softmax over all recorded tokens up to the query) that falls on the attended ones.
// Output error: ‖o − ô‖ / ‖o‖ with o of the exact attention and ô of the exact weights renormalised over the attended
// tokens, and over the head's sink if it has one, which has its part of o as well.
struct LayerQuality {
  double recall_mean = 0;
  double output_error = 0;  // mean
};

// Of one sequence, over its decode steps, layers and query heads.
struct SequenceQuality {
  std::uint32_t id = 0;
  std::uint64_t values = 0;
  double recall_mean = 0;
  double output_error = 0;  // mean
};

struct Quality {
  std::uint64_t values = 0;  // one for each decode step, layer and query head
  double recall_mean = 0;
  double recall_worst1 = 0;            // mean of the lowest max(1, ⌊values / 100⌋) recalls
  std::optional<double> output_error;  // mean; absent when it was not asked for
  std::vector<LayerQuality> layers;
  std::vector<SequenceQuality> sequences;  // those that decoded tokens

  // Standard errors of the means, over sequences, which are drawn one by one where heads and steps are not. A mean is a
  // ratio of sums: of n sequences with shares w of all values, √(n / (n − 1) · Σ w² (r − mean)²) (Cochran 1977, section
  // 6.4). Nothing of fewer than two.
  [[nodiscard]] std::optional<double> recall_standard_error() const;
  [[nodiscard]] std::optional<double> output_error_standard_error() const;
};

// Adds up values as they come; memory is the worst hundredth of them. Sums depend on the order of the calls.
class QualityStats {
 public:
  // `expected` values will be added, over `layers` layers.
  QualityStats(std::uint64_t expected, std::uint32_t layers, bool with_error);

  // Those of a sequence come one after another.
  void add(std::uint32_t layer, double recall, double output_error, std::uint32_t sequence = 0);
  // Nothing when no value was added.
  [[nodiscard]] std::optional<Quality> finish() const;

 private:
  struct Layer {
    std::uint64_t count = 0;
    double recall = 0;
    double error = 0;
  };
  bool with_error_;
  std::vector<Layer> layers_;
  std::vector<SequenceQuality> sequences_;  // sums
  std::vector<double> worst_;  // a heap with the largest on top
  std::size_t worst_count_;
};

}  // namespace kvroof
