#include "analysis/head_quality.hpp"

#include <algorithm>

namespace kvroof {
namespace {

using Visit = std::function<void(std::uint32_t, std::uint32_t, const HeadQualities&)>;

// Gathers one layer's values; the replay gives them layer by layer.
class Gatherer final : public ReplayObserver {
 public:
  Gatherer(const ReplayedTrace& replayed, std::size_t points, const Visit& visit)
      : replayed_(replayed), points_(points), visit_(visit) {}

  void quality(const QualityValue& value) override {
    layer_ = value.layer.value;
    if (layer_ < replayed_.options.first_layer || layer_ > replayed_.options.last_layer) return;
    if (heads_.size() <= value.query_head) heads_.resize(value.query_head + 1, HeadQualities(points_));
    heads_[value.query_head][value.point].push_back(value.quality);
  }

  void progress(std::uint64_t, std::uint64_t) override {
    for (std::uint32_t head = 0; head < heads_.size(); ++head) {
      visit_(layer_, head, heads_[head]);
      for (auto& values : heads_[head]) values.clear();
    }
    heads_.clear();
    replayed_.layer_done();
  }

 private:
  const ReplayedTrace& replayed_;
  std::size_t points_;
  const Visit& visit_;
  std::uint32_t layer_ = 0;
  std::vector<HeadQualities> heads_;
};

}  // namespace

void for_each_head_quality(const ReplayedTrace& replayed, std::span<const PolicySpec> points, MeasureOptions measure,
                           const Visit& visit) {
  Gatherer gatherer(replayed, points.size(), visit);
  ReplayOptions options;
  options.seed = replayed.trace.manifest().seed;
  options.measure = measure;
  options.observer = &gatherer;
  replay(replayed.trace, points, options, replayed.pool);
}

}  // namespace kvroof
