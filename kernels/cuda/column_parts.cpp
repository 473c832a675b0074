#include "kernels/cuda/column_parts.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cuda/device_tables.hpp"

namespace kvroof::cuda {
namespace {

constexpr std::uint32_t kBlocksOfMultiprocessor = 2;
constexpr std::uint32_t kTilesOfPart = 2;

}  // namespace

std::uint32_t column_parts(std::uint32_t rows, std::uint32_t cols, unsigned multiprocessors) {
  const std::uint32_t row_blocks = (rows + kPartRows - 1) / kPartRows;
  const std::uint32_t tiles = (cols + kPartColumns - 1) / kPartColumns;
  return std::max(1U, std::min(kBlocksOfMultiprocessor * multiprocessors / row_blocks, tiles / kTilesOfPart));
}

ColumnParts::ColumnParts(Stream& stream, unsigned multiprocessors)
    : stream_(stream), multiprocessors_(multiprocessors), norms_(2 * kPartTokens * sizeof(float)) {}

void ColumnParts::reserve() {
  if (sums_.bytes() > 0) return;
  const std::size_t blocks = std::size_t{kBlocksOfMultiprocessor} * multiprocessors_;
  const std::vector<unsigned> zeros(blocks);
  DeviceTables finished(stream_, finished_);
  finished.add(std::span<const unsigned>(zeros));
  finished.send();
  sums_.reserve(blocks * kPartFloats * sizeof(float));
}

void ColumnParts::cut(Stored weights, LinearArguments& a) const {
  a.shares = {};
  a.norms = nullptr;
  if (a.routed.chosen != nullptr || a.heads.count > 0) return;
  // Products of more vectors norm sums instead of columns (norm_waits).
  const bool waits = a.tokens > kFewTokens && a.norm == NormMode::kRms && weights == Stored::kBF16;
  if (a.norm != NormMode::kNone && !waits && a.tokens > 1 && a.tokens <= kPartTokens) a.norms = norms_.at<float>();
  if (sums_.bytes() == 0 || !serves(a.tokens)) return;
  const std::uint32_t parts = column_parts(a.w.rows, a.w.cols, multiprocessors_);
  if (parts > 1) a.shares = {parts, sums_.at<float>(), finished_.at<unsigned>()};
}

}  // namespace kvroof::cuda
