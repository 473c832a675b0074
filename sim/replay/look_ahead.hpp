// What the decoded queries of a recorded layer pay to each token, for bounds that know the future.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/policy/future_attention.hpp"
#include "sim/replay/exact_rows.hpp"
#include "traces/manifest.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// Reads the queries of a layer of a sequence to their end. `rows` has started the layer and may compute `block` rows at
// once. Throws Error (usage) where the future would take more than 4 GiB.
std::unique_ptr<FutureAttention> look_ahead(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                                            std::uint32_t block, ExactRows& rows);

}  // namespace kvroof
