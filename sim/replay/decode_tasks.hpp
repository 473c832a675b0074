// DecodeTasks: spreads a block of decode rows of all points over the threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/core/thread_pool.hpp"
#include "sim/replay/point_layer.hpp"

namespace kvroof {

class DecodeTasks {
 public:
  // All parts of the points, whose block has been started.
  void run(std::span<const std::unique_ptr<PointLayer>> points, ThreadPool& pool);

 private:
  struct Task {
    PointLayer* point;
    std::uint32_t part;
  };
  std::vector<Task> tasks_;
};

}  // namespace kvroof
