// What a model that drafts reads and holds; for the sources of the cost model alone.
#pragma once

#include "sim/model/model_shape.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

// Rows that a query of a sequence of so many tokens sees in a layer.
double rows_seen(const ModelShape& shape, std::uint32_t layer, double tokens);
// Rows of a sequence of so many tokens that full attention holds, over all layers and heads.
double rows_held(const ModelShape& shape, double tokens);

// Full attention at the ages of the target's sequences.
ResidencySummary draft_residency(const ModelShape& draft, const ResidencySummary& target);

}  // namespace kvroof
