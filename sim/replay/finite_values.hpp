// Recorded k and v that are NaN or infinite: nothing can be said of attention, or of outputs and of policies that score
// by v.
#pragma once

#include <span>

#include "sim/policy/spec.hpp"
#include "sim/replay/point_layer.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// Whether a replay of the points reads v.
bool reads_values(std::span<const PolicySpec> points, const MeasureOptions& measure);

// Throw Error, with the trace, sequence, layer, head and token, where one is. `layer` is the first of those that lie
// side by side in `values`, whose shape is `shape`.
void require_finite_keys(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                         const TraceLayer& shape, const LayerKeysValues& values);
void require_finite_values(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                           const TraceLayer& shape, const LayerKeysValues& values);

}  // namespace kvroof
