// Residency of single layers, for the sources of the summaries alone.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/traffic/summary.hpp"

namespace kvroof {

// What a query meets that is one of `tokens` and reads the newest `read` of them.
AgedRows met_ages(std::uint64_t heads, std::uint64_t tokens, std::uint64_t read);
// Of heads that keep the newest `held` of `tokens` tokens, and `before` one token earlier (0: a prompt).
void set_full_ages(LayerCounts& counts, std::uint64_t heads, std::uint64_t tokens, std::uint64_t held,
                   std::uint64_t before);

// Full attention in layers of one window (0: none), which hold together what one layer of all their heads would.
// `chosen`: tokens that a query reads at most where an index chooses them (0: there is none).
Residency full_attention(std::uint64_t heads, std::uint32_t window, std::uint32_t chosen, std::uint32_t prompt,
                         std::uint32_t output);

// The same of rows that each stand for `rate` tokens (sim/model/compressed_rows.hpp), without the window beside them.
ResidencySummary full_compressed_summary(std::uint64_t heads, std::uint32_t rate, std::uint32_t chosen,
                                         std::uint32_t prompt, std::uint32_t output);

// Rows that a query of each of n tokens sees, summed: a token sees those whose tokens have all come, at most `most`
// (0: all).
std::uint64_t compressed_rows_seen(std::uint64_t tokens, std::uint32_t rate, std::uint32_t most = 0);

// A layer whose cells are those of `window`, and beside them of `rows`, whose tokens are rows of `rate` tokens each, of
// which an index chooses so many at most (0: all are read): a step in which no row comes reads what the last one left.
// `rows` has max(prompt / rate, 1) tokens of prompt and a step for each row that comes, at least one where `window` has
// steps.
Residency beside_window(const Residency& window, const Residency& rows, std::uint32_t rate, std::uint32_t chosen);

}  // namespace kvroof
