// PromptSharing: of points that differ in their budget alone, one looks at the prompt for all.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "sim/core/thread_pool.hpp"
#include "sim/replay/point_layer.hpp"

namespace kvroof {

class PromptSharing {
 public:
  // Another layer follows.
  void start() { seen_by_.clear(); }
  // The next of the points: whether it looks at the prompt itself.
  bool add(std::span<const PolicySpec> specs, const PointLayer& point);
  // After the last row of the prompt and before the first finish_prompt(): the others take over what was seen.
  void share(std::span<const std::unique_ptr<PointLayer>> points, ThreadPool& pool) const;

 private:
  std::vector<std::size_t> seen_by_;  // by point: who looks at the prompt
};

}  // namespace kvroof
