// What a model that drafts reads and holds; for the sources of the cost model alone.
#pragma once

#include "sim/model/model_shape.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

// Full attention at the ages of the target's sequences.
ResidencySummary draft_residency(const ModelShape& draft, const ResidencySummary& target);

}  // namespace kvroof
