// Cosines and sines of a pass's positions, kept for each rotary rule: q and k of all its layers are rotated alike.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/engine/ops.hpp"

namespace kvroof {

// Of row t and pair i: cosines[t · pairs + i], sines likewise; both times the rule's magnitude.
struct RotaryAngles {
  std::vector<float> cosines, sines;
};

class RotaryTables {
 public:
  // Valid until the next call. A table is made once for each rule while the positions stay the same.
  const RotaryAngles& angles(const RowPlaces& places, const RotaryRule& rule);

 private:
  struct Table {
    RotaryRule rule;
    std::vector<std::uint8_t> use_long;
    RotaryAngles angles;
  };

  std::vector<TokenPos> positions_;
  std::vector<Table> tables_;  // of positions_
};

}  // namespace kvroof
