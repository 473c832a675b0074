// Recorded q, k and v that are NaN or infinite, or so large that sums overflow: nothing can be said of attention, or of
// outputs and of policies that score by v.
#pragma once

#include <span>

#include "sim/policy/spec.hpp"
#include "sim/replay/cache_view.hpp"
#include "sim/replay/exact_rows.hpp"
#include "sim/replay/point_layer.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// Whether a replay of the points reads v.
bool reads_values(std::span<const PolicySpec> points, const MeasureOptions& measure);

// Throw Error, with the trace, sequence, layer, head and token, where one is. `layer` is the first of those that lie
// side by side in `values`, whose shape is `shape`.
void require_finite_keys(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                         const TraceLayer& shape, const LayerKeysValues& values);
// Neither NaN nor infinite nor above 2¹⁰⁰, of which a sum over all tokens may be no float.
void require_finite_values(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                           const TraceLayer& shape, const LayerKeysValues& values);
// The same of caches that hold v in another type, whose range may be smaller.
void require_held_values(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                         const TraceLayer& shape, const CacheViews& caches);

// The error of a logit that is no number, with its place.
Error place_of_logit(const InfiniteLogit& logit, const TraceReader& trace, const TraceSequence& sequence,
                     LayerId layer);

}  // namespace kvroof
