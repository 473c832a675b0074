// The one arithmetic that makes logits, weights and outputs from q, k and v; engine and replay both call it.
//
// Every function adds in an order that depends on the sizes alone, not on the instruction set or the number of threads,
// and uses separate multiplications and additions, so that two callers with the same rows get the same bits. A dot
// product sums sixteen interleaved lanes and then folds them in halves; a softmax sums its exponentials likewise, in
// thirty-two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sim/core/alibi.hpp"
#include "sim/core/dtype.hpp"
#include "sim/core/ids.hpp"

namespace kvroof {

// Rows of k or v in memory: row i starts at data + i · stride elements.
struct RowsView {
  const std::byte* data = nullptr;
  DType type = DType::kF32;  // f32, f16 or bf16; converted to float exactly
  std::size_t stride = 0;    // elements from one row to the next
  std::size_t width = 0;     // elements of a row
  std::size_t count = 0;     // rows

  [[nodiscard]] const std::byte* row(std::size_t i) const { return data + i * stride * size_of(type); }
  [[nodiscard]] RowsView slice(std::size_t first, std::size_t rows) const {
    return {row(first), type, stride, width, rows};
  }
  // Read when each row is walked once.
  [[nodiscard]] std::uint64_t bytes() const { return count * width * size_of(type); }
};

// How a dot product becomes a logit: scale · (q·k), then soft-cap (cap · tanh(x / cap)) when softcap > 0.
struct LogitRule {
  float scale = 1;
  float softcap = 0;
};

// logits[i] = rule(q · keys.row(i)) for all rows; q.size() == keys.width, logits.size() == keys.count.
void compute_logits(std::span<const float> q, const RowsView& keys, const LogitRule& rule, std::span<float> logits);

// logits[i] += bias.of(positions[i], query): ALiBi (Press et al. 2022), relative to the query.
void add_alibi(std::span<const TokenPos> positions, TokenPos query, const AlibiBias& bias, std::span<float> logits);

// A logit of a query head that takes part in its softmax and has no token (gpt-oss, arXiv:2508.10925, section 2.2);
// most models have none.
using AttentionSink = std::optional<float>;

// weights = softmax(logits), in float; sizes equal and ≥ 1. May be the same memory. Equal logits have the weight
// 1 / count, rounded once, where there is no sink. Returns the sink's weight, 0 without one.
//
// The exponentials are e^x / 2^n with one n for the row, that of its largest logit: n moves exponents and no digits, so
// a weight has the same bits whatever n its row had (where nothing underflows, and no logit is beyond ±16384; such
// rows have their maximum subtracted first).
float softmax(std::span<const float> logits, std::span<float> weights, AttentionSink sink = {});

// What there is to say of a row's exponentials.
struct RowExponentials {
  // The weights of any part of the row, in any order, can be made of them as well as of its logits: no logit is beyond
  // ±16384, and all lie within 2^100 of one another.
  bool shares = false;
  float sink = 0;  // that of the sink
};
// The first half of a softmax: e^x / 2^n.
RowExponentials exponentials(std::span<const float> logits, std::span<float> out, AttentionSink sink = {});
// The second half: what softmax would make of the logits that these exponentials are of, to the bit, where the row that
// had them all shares them. May be the same memory.
void weights_of_exponentials(std::span<const float> exponentials, std::span<float> weights, float sink = 0);
// What it multiplies them by; nothing where they are all equal, and there is no sink.
std::optional<float> weight_factor(std::span<const float> exponentials, float sink = 0);

// weights = softmax((logits + noise) / tau); noise may be empty (none). Keyformer's score function.
void softmax_with_noise(std::span<const float> logits, std::span<const float> noise, float tau,
                        std::span<float> weights);

// out = Σ_i weights[i] · values.row(i), added in row order; out.size() == values.width.
void weighted_sum(std::span<const float> weights, const RowsView& values, std::span<float> out);

// Rows that are gathered together: those of successive queries, so that what a slot pays lies side by side.
inline constexpr std::size_t kInterleavedRows = 8;

// out[i][r] = rows[r][i] for i < count.
void interleave(const std::array<const float*, kInterleavedRows>& rows, std::size_t count, float* out);
// Logits of the queries [first, last), at most kInterleavedRows: that at p has those of the tokens 0 … p, which are −∞
// before the first that it sees.
struct LogitRows {
  std::array<const float*, kInterleavedRows> rows;  // from last − first on, the last one again
  std::array<std::uint32_t, kInterleavedRows> first_visible;
  std::uint32_t first = 0, last = 0;
  AttentionSink sink;  // of all rows
};
// Their exponentials side by side, out[token][kInterleavedRows], of all tokens before `last`; of a token that a row
// does not have, any value. Returns what exponentials() says of each row.
std::array<RowExponentials, kInterleavedRows> interleaved_exponentials(const LogitRows& logits, float* out);
// out[r · stride + s] = rows[index[s]][r], rows being [positions][kInterleavedRows].
void gather_interleaved(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride);

// out[i] = from[index[i]]: the logits of a resident set out of a row over all positions.
void gather(std::span<const float> from, std::span<const TokenPos> index, std::span<float> out);

}  // namespace kvroof
