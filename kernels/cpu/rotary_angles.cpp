#include "kernels/cpu/rotary_angles.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

// The angle is rounded to float where the published models round it; a long context notices.
void fill(const RowPlaces& places, const RotaryRule& rule, RotaryAngles& angles) {
  const std::size_t pairs = rule.dims / 2;
  angles.cosines.resize(places.positions.size() * pairs);
  angles.sines.resize(places.positions.size() * pairs);
  for (std::size_t t = 0; t < places.positions.size(); ++t) {
    const bool use_long = !places.use_long.empty() && places.use_long[t] != 0;
    const std::vector<float>& frequencies = use_long ? rule.long_inverse_frequencies : rule.inverse_frequencies;
    for (std::size_t i = 0; i < pairs; ++i) {
      const auto angle = static_cast<double>(static_cast<float>(places.positions[t].value) * frequencies[i]);
      angles.cosines[t * pairs + i] = static_cast<float>(std::cos(angle)) * rule.magnitude;
      angles.sines[t * pairs + i] = static_cast<float>(std::sin(angle)) * rule.magnitude;
    }
  }
}

}  // namespace

const RotaryAngles& RotaryTables::angles(const RowPlaces& places, const RotaryRule& rule) {
  if (!std::ranges::equal(places.positions, positions_)) {
    tables_.clear();
    positions_.assign(places.positions.begin(), places.positions.end());
  }
  for (const Table& table : tables_) {
    if (table.rule == rule && std::ranges::equal(table.use_long, places.use_long)) return table.angles;
  }
  Table& table = tables_.emplace_back(Table{rule, {places.use_long.begin(), places.use_long.end()}, {}});
  fill(places, rule, table.angles);
  return table.angles;
}

}  // namespace kvroof
