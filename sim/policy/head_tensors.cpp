#include "sim/policy/head_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/policy/policy.hpp"

namespace kvroof {

HeadTensors::HeadTensors(const HeadRows& rows, std::span<const TokenPos> positions, std::span<const SlotMove> moves,
                         Scratch& scratch)
    : rows_(rows), row_of_slot_(scratch.row_of_slot) {
  row_of_slot_.resize(positions.size());
  if (rows.by_position) {
    std::ranges::transform(positions, row_of_slot_.begin(), [](TokenPos p) { return p.value; });
    return;
  }
  std::vector<std::uint32_t>& origin = scratch.origin;
  origin.resize(rows.keys.count);
  std::iota(origin.begin(), origin.end(), 0U);
  for (const SlotMove& m : moves) origin[m.to.value] = origin[m.from.value];
  std::copy_n(origin.begin(), row_of_slot_.size(), row_of_slot_.begin());
}

void HeadTensors::read(const RowsView& rows, std::span<const SlotId> order, std::vector<float>& out) {
  out.resize(order.size() * rows.width);
  for (std::size_t i = 0; i < order.size(); ++i) {
    convert_to_float(rows.type, rows.row(row_of_slot_[order[i].value]),
                     std::span(out).subspan(i * rows.width, rows.width));
  }
  elements_read_ += out.size();
}

void HeadTensors::read_keys(std::span<const SlotId> order, std::vector<float>& out) { read(rows_.keys, order, out); }

void HeadTensors::read_values(std::span<const SlotId> order, std::vector<float>& out) {
  read(rows_.values, order, out);
}

void HeadTensors::read_queries(std::uint32_t count, std::vector<float>& out) {
  const RowsView& rows = rows_.queries;
  const std::size_t read = std::min<std::size_t>(count, rows.count);
  out.resize(read * rows.width);
  for (std::size_t i = 0; i < read; ++i) {
    convert_to_float(rows.type, rows.row(rows.count - read + i), std::span(out).subspan(i * rows.width, rows.width));
  }
  elements_read_ += out.size();
}

void merge_row(DType type, std::size_t width, const RowMerge& merge, const std::byte* from, std::byte* to) {
  thread_local std::vector<float> rows;
  rows.resize(2 * width);
  const std::span<float> own = std::span(rows).first(width);
  const std::span<float> other = std::span(rows).last(width);
  convert_to_float(type, to, own);
  convert_to_float(type, from, other);
  for (std::size_t i = 0; i < width; ++i) own[i] = merge.kept * own[i] + merge.added * other[i];
  convert_from_float(type, own, to);
}

void slots_by_age(std::span<const TokenPos> positions, std::vector<SlotId>& order) {
  order.clear();
  for (std::uint32_t s = 0; s < positions.size(); ++s) order.emplace_back(s);
  std::ranges::sort(order, {}, [&](SlotId s) { return positions[s.value]; });
}

std::span<const float> LayerRotation::frequencies() const {
  if (rule == nullptr) return {};
  return long_table ? rule->long_inverse_frequencies : rule->inverse_frequencies;
}

std::pair<std::size_t, std::size_t> LayerRotation::elements(std::size_t pair) const {
  const bool split = rule->style == RotaryStyle::kHalfSplit;
  return split ? std::pair{first + pair, first + pair + rule->dims / 2}
               : std::pair{first + 2 * pair, first + 2 * pair + 1};
}

void undo_rotation(const LayerRotation& rotation, TokenPos position, std::size_t width, std::span<float> rows) {
  const std::span<const float> frequencies = rotation.frequencies();
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    // The angle as it was when the row was turned: rounded to float.
    const auto angle = static_cast<double>(static_cast<float>(position.value) * frequencies[i]);
    const double cosine = std::cos(angle) / static_cast<double>(rotation.rule->magnitude);
    const double sine = std::sin(angle) / static_cast<double>(rotation.rule->magnitude);
    const auto [one, other] = rotation.elements(i);
    for (std::size_t row = 0; row < rows.size(); row += width) {
      const auto a = static_cast<double>(rows[row + one]);
      const auto b = static_cast<double>(rows[row + other]);
      rows[row + one] = static_cast<float>(a * cosine + b * sine);
      rows[row + other] = static_cast<float>(b * cosine - a * sine);
    }
  }
}

}  // namespace kvroof
