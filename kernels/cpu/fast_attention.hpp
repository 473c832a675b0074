// Attention of the fast back end, one call at a time; calls of different heads may run on different threads.
#pragma once

#include <cstdint>

#include "kernels/engine/ops.hpp"

namespace kvroof::fast {

// Query rows that share one pass over k and v in prefill_attend_one.
inline constexpr std::uint32_t kPrefillBlock = 64;

// One query position over the slots of its cache; shows the row to the policy when it wants rows.
void attend_one(const AttendCall& call, const AttentionRule& rule);

// All rows of a prompt, in blocks of kPrefillBlock; admits each token and shows its row in order.
void prefill_attend_one(const PrefillCall& call, const AttentionRule& rule);

// Rows of k (and of v) that prefill_attend_one walks for a prompt: every block walks the tokens up to its end, from the
// first that its first row sees through the window (0: none).
std::uint64_t prefill_rows_walked(std::uint64_t prompt, std::uint32_t window);

}  // namespace kvroof::fast
