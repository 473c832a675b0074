#include "kernels/cuda/split_k.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cuda/device_tables.hpp"

namespace kvroof::cuda {
namespace {

constexpr std::uint32_t kBlocksOfMultiprocessor = 2;
constexpr std::uint32_t kTilesOfSplit = 2;

}  // namespace

std::uint32_t k_splits(std::uint32_t rows, std::uint32_t cols, unsigned multiprocessors) {
  const std::uint32_t row_blocks = (rows + kSplitRows - 1) / kSplitRows;
  const std::uint32_t tiles = (cols + kSplitColumns - 1) / kSplitColumns;
  return std::max(1U, std::min(kBlocksOfMultiprocessor * multiprocessors / row_blocks, tiles / kTilesOfSplit));
}

SplitKMemory::SplitKMemory(Stream& stream, unsigned multiprocessors)
    : stream_(stream), multiprocessors_(multiprocessors), norms_(2 * kLargeTile * sizeof(float)) {}

void SplitKMemory::reserve() {
  if (sums_.bytes() > 0) return;
  const std::size_t blocks = std::size_t{kBlocksOfMultiprocessor} * multiprocessors_;
  const std::vector<unsigned> zeros(blocks);
  DeviceTables finished(stream_, finished_);
  finished.add(std::span<const unsigned>(zeros));
  finished.send();
  sums_.reserve(blocks * kSplitFloats * sizeof(float));
}

void SplitKMemory::cut(Stored weights, LinearArguments& a) const {
  a.split_k = {};
  a.norms = nullptr;
  if (a.routed.chosen != nullptr || a.heads.count > 0) return;
  // Products of more vectors norm sums instead of columns (norm_waits).
  const bool waits = a.tokens > kFewTokens && a.norm == NormMode::kRms && weights == Stored::kBF16;
  if (a.norm != NormMode::kNone && !waits && a.tokens > 1 && a.tokens <= kLargeTile) a.norms = norms_.at<float>();
  if (sums_.bytes() == 0 || !serves(a.tokens)) return;
  const std::uint32_t splits = k_splits(a.w.rows, a.w.cols, multiprocessors_);
  if (splits > 1) a.split_k = {splits, sums_.at<float>(), finished_.at<unsigned>()};
}

}  // namespace kvroof::cuda
