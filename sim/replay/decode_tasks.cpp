#include "sim/replay/decode_tasks.hpp"

#include <algorithm>

namespace kvroof {

// Head by head, so that the rows of one head serve all points while they are in the cache. Points that cannot be
// parted take longest and come first.
void DecodeTasks::run(std::span<const std::unique_ptr<PointLayer>> points, ThreadPool& pool) {
  tasks_.clear();
  std::uint32_t most = 0;
  for (const auto& point : points) {
    most = std::max(most, point->parts());
    if (point->parts() == 1) tasks_.push_back({point.get(), 0});
  }
  for (std::uint32_t part = 0; part < most; ++part) {
    for (const auto& point : points) {
      if (point->parts() > 1 && part < point->parts()) tasks_.push_back({point.get(), part});
    }
  }
  pool.parallel_for(tasks_.size(), [this](std::size_t i) { tasks_[i].point->decode(tasks_[i].part); });
}

}  // namespace kvroof
