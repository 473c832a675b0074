// Rows of a sequence under full attention, as far as windows show them; for the sources of the cost model alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/model/model_shape.hpp"

namespace kvroof {

// Those that a query of a sequence of so many tokens sees in a layer.
inline double rows_seen(const ModelShape& shape, std::uint32_t layer, double tokens) {
  const std::uint32_t window = shape.window(layer);
  return shape.rows_of_token(layer) * (window > 0 ? std::min<double>(tokens, window) : tokens);
}

// Those that are held, over all layers and heads.
inline double rows_held(const ModelShape& shape, double tokens) {
  double rows = 0;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    if (shape.has_own_rows(layer)) rows += rows_seen(shape, layer, tokens);
  }
  return rows;
}

}  // namespace kvroof
