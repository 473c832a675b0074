#include "sim/attention/attention.hpp"
#include "sim/attention/key_tile.hpp"
#include "sim/attention/noisy_softmax.hpp"

#include <algorithm>
#include <functional>

#include "sim/attention/portable_math.hpp"
#include "sim/attention/vector.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

namespace {

void cap(float softcap, std::span<float> logits) {
  if (softcap <= 0) return;
  for (float& x : logits) x = softcap * portable::tanh(x / softcap);
}

}  // namespace

void compute_logits(std::span<const float> q, const RowsView& keys, const LogitRule& rule, std::span<float> logits) {
  check(q.size() == keys.width && logits.size() == keys.count, "sizes of query, keys and logits agree");
  vector::scaled_dots(q.data(), keys, rule.scale, logits.data());
  cap(rule.softcap, logits);
}

void KeyTile::load(const RowsView& keys) {
  check(keys.count > 0 && keys.count <= kKeys, "a tile has 1 to 64 keys");
  width_ = keys.width;
  if (channels_.size() < width_ * kKeys) channels_.resize(width_ * kKeys);
  vector::turn(keys, kKeys, channels_.data());
}

void compute_logits(std::span<const float* const> queries, const KeyTile& keys, const LogitRule& rule,
                    std::span<float> out) {
  check(out.size() == queries.size() * KeyTile::kKeys, "logits of all keys for each query");
  vector::scaled_dots(queries, keys.channels(), keys.width(), KeyTile::kKeys, rule.scale, out.data());
  cap(rule.softcap, out);
}

void add_alibi(std::span<const TokenPos> positions, TokenPos query, const AlibiBias& bias, std::span<float> logits) {
  check(positions.size() == logits.size(), "a position for each logit");
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] += bias.of(positions[i], query);
}

namespace {

constexpr float kFarthestLogit = 16384;  // n · ln 2 is exact up to it (portable::exp_of_rest)
constexpr float kSharedRange = 100;      // powers of two between the exponentials of a row whose parts can share them

bool is_regular(const Range& range) { return range.least >= -kFarthestLogit && range.most <= kFarthestLogit; }

ExponentOrigin origin_of(const Range& range) {
  const float shift = is_regular(range) ? 0 : range.most;
  return {shift, portable::shifted_exponent(range.most - shift)};
}

// Of a sink, relative to its row's tokens, so that theirs keep their digits whatever it is; above 2^kSharedRange times
// the largest, where they weigh next to nothing, it counts as that.
float exponential_of(AttentionSink sink, const ExponentOrigin& origin) {
  if (!sink) return 0;
  const float x = *sink - origin.shift;
  constexpr auto kMost = static_cast<float>(1ULL << 50) * static_cast<float>(1ULL << 50);
  if (portable::shifted_exponent(x) - origin.reference > kSharedRange) return kMost;
  return portable::exp_over(x, origin.reference);
}
RowExponentials made_of(const Range& range, AttentionSink sink, const ExponentOrigin& origin) {
  const Range all = sink ? Range{std::min(range.least, *sink), std::max(range.most, *sink)} : range;
  const float most = portable::shifted_exponent(all.most);
  const bool near = is_regular(all) && most - portable::shifted_exponent(all.least) <= kSharedRange;
  return {near, exponential_of(sink, origin)};
}

bool all_equal(std::span<const float> x) {
  return std::adjacent_find(x.begin(), x.end(), std::not_equal_to<>()) == x.end();
}

// Of exponentials whose sum with that of the sink is `sum`.
void normalise(std::span<const float> exponentials, float sum, float sink, std::span<float> weights) {
  // Equal logits ask for equal shares exactly: thresholds like 1 / count are compared with them.
  if (sink == 0 && all_equal(exponentials)) {
    std::fill(weights.begin(), weights.end(), 1 / static_cast<float>(weights.size()));
    return;
  }
  vector::scale(exponentials.data(), weights.size(), 1 / sum, weights.data());
}

}  // namespace

float softmax(std::span<const float> logits, std::span<float> weights, AttentionSink sink) {
  check(!logits.empty() && logits.size() == weights.size(), "a weight for each logit, and at least one");
  const ExponentOrigin origin = origin_of(vector::range_of(logits.data(), logits.size()));
  const float of_sink = exponential_of(sink, origin);
  const float sum = vector::exponentials(logits.data(), logits.size(), origin, weights.data()) + of_sink;
  normalise(weights, sum, of_sink, weights);
  return of_sink * (1 / sum);
}

RowExponentials exponentials(std::span<const float> logits, std::span<float> out, AttentionSink sink) {
  check(!logits.empty() && logits.size() == out.size(), "an exponential for each logit, and at least one");
  const Range range = vector::range_of(logits.data(), logits.size());
  const ExponentOrigin origin = origin_of(range);
  vector::exponentials(logits.data(), logits.size(), origin, out.data());
  return made_of(range, sink, origin);
}

void weights_of_exponentials(std::span<const float> exponentials, std::span<float> weights, float sink) {
  check(!exponentials.empty() && exponentials.size() == weights.size(), "a weight for each, and at least one");
  normalise(exponentials, vector::sum(exponentials.data(), exponentials.size()) + sink, sink, weights);
}

std::optional<float> weight_factor(std::span<const float> exponentials, float sink) {
  check(!exponentials.empty(), "at least one exponential");
  if (sink == 0 && all_equal(exponentials)) return std::nullopt;
  return 1 / (vector::sum(exponentials.data(), exponentials.size()) + sink);
}

float exponentials_with_noise(std::span<const float> logits, std::span<const float> noise, float tau,
                              std::span<float> out) {
  check(!logits.empty() && logits.size() == out.size(), "an exponential for each logit, and at least one");
  check(noise.empty() || noise.size() == logits.size(), "a draw for each logit, or none");
  const Range range = vector::scaled_sums(logits.data(), noise.empty() ? nullptr : noise.data(), logits.size(), 1 / tau,
                                          out.data());
  const float sum = vector::exponentials(out.data(), out.size(), origin_of(range), out.data());
  if (!all_equal(out)) return 1 / sum;
  std::fill(out.begin(), out.end(), 1 / static_cast<float>(out.size()));
  return 1;
}

void softmax_with_noise(std::span<const float> logits, std::span<const float> noise, float tau,
                        std::span<float> weights) {
  const float factor = exponentials_with_noise(logits, noise, tau, weights);
  vector::scale(weights.data(), weights.size(), factor, weights.data());
}

void weighted_sum(std::span<const float> weights, const RowsView& values, std::span<float> out) {
  check(weights.size() == values.count && out.size() == values.width, "sizes of weights, values and output agree");
  vector::weighted_sum(weights.data(), values, out.data());
}

void interleave(const std::array<const float*, kInterleavedRows>& rows, std::size_t count, float* out) {
  vector::interleave(rows, count, out, kInterleavedRows);
}

namespace {

// The range of what a row's query sees.
Range visible_range(const LogitRows& logits, std::uint32_t r) {
  const std::uint32_t from = logits.first_visible[r];
  const std::uint32_t position = std::min(logits.first + r, logits.last - 1);
  return vector::range_of(logits.rows[r] + from, position + 1 - from);
}

// Of the tokens that not all of the rows see; logit(row, token).
template <class Logit>
void interleave_own_tokens(const LogitRows& logits, const RowOrigins& origins, const Logit& logit, float* out) {
  for (std::uint32_t token = logits.first + 1; token < logits.last; ++token) {
    for (std::uint32_t r = token - logits.first; r < logits.last - logits.first; ++r) {
      out[std::size_t{token} * kInterleavedRows + r] =
          portable::exp_over(logit(r, token) - origins[r].shift, origins[r].reference);
    }
  }
}

}  // namespace

std::array<RowExponentials, kInterleavedRows> interleaved_exponentials(const LogitRows& logits, float* out) {
  RowOrigins origins;
  std::array<RowExponentials, kInterleavedRows> made;
  for (std::uint32_t r = 0; r < kInterleavedRows; ++r) {
    const Range range = visible_range(logits, r);
    origins[r] = origin_of(range);
    made[r] = made_of(range, logits.sink, origins[r]);
  }
  vector::interleaved_exponentials(logits.rows, origins, logits.first + 1, out);
  const auto logit = [&](std::uint32_t r, std::uint32_t token) { return logits.rows[r][token]; };
  interleave_own_tokens(logits, origins, logit, out);
  return made;
}

std::array<RowExponentials, kInterleavedRows> interleaved_exponentials(const NoisyLogits& rows, float* out) {
  const LogitRows& logits = rows.logits;
  RowOrigins origins;
  std::array<RowExponentials, kInterleavedRows> made;
  for (std::uint32_t r = 0; r < kInterleavedRows; ++r) {
    // Bounds do as well as the range: the origin moves exponents alone.
    const Range range = visible_range(logits, r);
    const Range noisy{(range.least + rows.least) * rows.factors[r], (range.most + rows.most) * rows.factors[r]};
    origins[r] = origin_of(noisy);
    made[r] = made_of(noisy, {}, origins[r]);
  }
  vector::interleaved_exponentials(logits.rows, {rows.noise, rows.factors}, origins, logits.first + 1, out);
  const auto logit = [&](std::uint32_t r, std::uint32_t token) {
    return (logits.rows[r][token] + rows.noise[r][token]) * rows.factors[r];
  };
  interleave_own_tokens(logits, origins, logit, out);
  return made;
}

void gather_interleaved(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride) {
  vector::gather_interleaved(rows, index, out, stride);
}

void gather(std::span<const float> from, std::span<const TokenPos> index, std::span<float> out) {
  check(index.size() == out.size(), "an index for each element");
  // Four at a time, so that the loads need not wait for the stores.
  const std::size_t count = out.size();
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const float a = from[index[i].value];
    const float b = from[index[i + 1].value];
    const float c = from[index[i + 2].value];
    const float d = from[index[i + 3].value];
    out[i] = a;
    out[i + 1] = b;
    out[i + 2] = c;
    out[i + 3] = d;
  }
  for (; i < count; ++i) out[i] = from[index[i].value];
}

}  // namespace kvroof
