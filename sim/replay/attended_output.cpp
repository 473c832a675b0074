#include "sim/replay/attended_output.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvroof {
namespace {
constexpr std::size_t kChunkRows = 64;  // gathered rows that stay in the first cache
}

void AttendedOutput::start(std::span<const TokenPos> attended, std::uint32_t group) {
  group_ = group;
  first_slots_ = attended.size();
  columns_.assign(attended.begin(), attended.end());
  by_slot_.assign(attended.begin(), attended.end());
  column_of_slot_.resize(attended.size());
  std::iota(column_of_slot_.begin(), column_of_slot_.end(), 0U);
  moved_.clear();
  stride_ = attended.size() + kMostRows;
  if (weights_.size() < kMostRows * group * stride_) weights_.resize(kMostRows * group * stride_);
}

// Gives a column to every slot whose token is not the one of the query before.
bool AttendedOutput::find_columns(std::span<const TokenPos> attended) {
  const std::size_t slots = attended.size();
  const std::size_t known = std::min(slots, by_slot_.size());
  std::size_t fresh = slots - known;
  for (std::size_t s = 0; s < known; ++s) fresh += by_slot_[s] == attended[s] ? 0U : 1U;
  if (columns_.size() + fresh > stride_) return false;
  for (std::size_t s = 0; s < slots && fresh > 0; ++s) {
    if (s < known && by_slot_[s] == attended[s]) continue;
    const auto column = static_cast<std::uint32_t>(columns_.size());
    columns_.push_back(attended[s]);
    if (s >= column_of_slot_.size()) column_of_slot_.resize(s + 1);
    if (std::find(moved_.begin(), moved_.end(), s) == moved_.end()) moved_.push_back(s);
    column_of_slot_[s] = column;
    --fresh;
  }
  by_slot_.assign(attended.begin(), attended.end());
  return true;
}

bool AttendedOutput::add(TokenPos position, std::span<const TokenPos> attended, std::span<const float> weights,
                         std::uint32_t group) {
  const std::size_t slots = attended.size();
  if (queries_.empty()) start(attended, group);
  if (queries_.size() == kMostRows || !find_columns(attended)) return false;
  float* row = weights_.data() + queries_.size() * group_ * stride_;
  for (std::uint32_t g = 0; g < group_; ++g, row += stride_) {
    const float* from = weights.data() + g * slots;
    const std::size_t unmoved = std::min(slots, first_slots_);
    std::copy_n(from, unmoved, row);
    std::fill(row + unmoved, row + stride_, 0.0F);
    for (const std::size_t s : moved_) {
      if (s < unmoved) row[s] = 0;
    }
    for (const std::size_t s : moved_) {
      if (s < slots) row[column_of_slot_[s]] = from[s];
    }
  }
  queries_.push_back(position);
  return true;
}

std::span<const float> AttendedOutput::compute(const RowsView& values) {
  const std::size_t row_bytes = values.width * size_of(values.type);
  const std::size_t results = queries_.size() * group_;
  rows_.resize(kChunkRows * row_bytes);
  partial_.resize(values.width);
  outputs_.assign(results * values.width, 0.0F);
  for (std::size_t begin = 0; begin < columns_.size(); begin += kChunkRows) {
    const std::size_t count = std::min(kChunkRows, columns_.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(rows_.data() + i * row_bytes, values.row(columns_[begin + i].value), row_bytes);
    }
    const RowsView rows{rows_.data(), values.type, values.width, values.width, count};
    for (std::size_t r = 0; r < results; ++r) {
      weighted_sum({weights_.data() + r * stride_ + begin, count}, rows, partial_);
      float* sum = outputs_.data() + r * values.width;
      for (std::size_t c = 0; c < values.width; ++c) sum[c] += partial_[c];
    }
  }
  queries_.clear();
  return outputs_;
}

}  // namespace kvroof
