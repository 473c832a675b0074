// W_O of a model, for policies that weigh v by it.
#pragma once

#include <functional>

#include "kernels/engine/model.hpp"
#include "sim/attention/attention.hpp"
#include "sim/core/ids.hpp"
#include "traces/manifest.hpp"

namespace kvroof {

// Puts those of all layers into memory, for a back end that keeps the other weights elsewhere.
void make_output_projections(Model& model);

// Of the model that a trace was recorded with. By layer: [hidden, query heads · v width], in the type of the
// recording's weights. The folder that the trace names is read at the first call, which throws Error (usage) where
// there is none; what is returned lives as long as the function and its copies.
std::function<RowsView(LayerId)> output_projections_of(const TraceManifest& manifest);

}  // namespace kvroof
