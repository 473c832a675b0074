#include "sim/replay/attended_output.hpp"

#include <algorithm>
#include <cstring>

namespace kvroof {
namespace {
constexpr std::size_t kChunkRows = 64;  // gathered rows that stay in the first cache
}

void AttendedOutput::compute(std::span<const TokenPos> positions, std::span<const float> weights, std::uint32_t group,
                             const RowsView& values, std::span<float> out) {
  const std::size_t row_bytes = values.width * size_of(values.type);
  rows_.resize(kChunkRows * row_bytes);
  partial_.resize(values.width);
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::size_t begin = 0; begin < positions.size(); begin += kChunkRows) {
    const std::size_t count = std::min(kChunkRows, positions.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(rows_.data() + i * row_bytes, values.row(positions[begin + i].value), row_bytes);
    }
    const RowsView rows{rows_.data(), values.type, values.width, values.width, count};
    for (std::uint32_t g = 0; g < group; ++g) {
      weighted_sum(weights.subspan(g * positions.size() + begin, count), rows, partial_);
      float* sum = out.data() + g * values.width;
      for (std::size_t c = 0; c < values.width; ++c) sum[c] += partial_[c];
    }
  }
}

}  // namespace kvroof
