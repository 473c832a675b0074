// Attention outputs over a subset of the tokens: the rows of v are gathered once for all query heads of a group.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/ids.hpp"

namespace kvroof {

class AttendedOutput {
 public:
  // out [group, v_width] = Σ_s weights[g][s] · values.row(positions[s]), in slot order; weights is [group][positions].
  void compute(std::span<const TokenPos> positions, std::span<const float> weights, std::uint32_t group,
               const RowsView& values, std::span<float> out);

 private:
  std::vector<std::byte> rows_;
  std::vector<float> partial_;
};

}  // namespace kvroof
