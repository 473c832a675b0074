// What a quantised KV cache makes of k and v: levels, scales, and the values that attention then meets.
//
// The one place that rounds for a quantised cache; engine and replay both call it. Levels are rounded half to even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/core/kv_type.hpp"

namespace kvroof {

// Elements that share a minimum and a scale, as KIVI (quant/new_pack.py) and FlexGen have it: level =
// round((x − minimum) / scale), within 0 … 2^bits − 1, scale = (maximum − minimum) / (2^bits − 1). Every operation
// rounds to `arithmetic` (f32 or f16); in float16 the round trip errs by up to 0.515 steps instead of 0.5. Equal
// elements have the scale 0, level 0 and come back as they are.
struct GroupScale {
  float scale = 0, minimum = 0;
};
// x is of the type `arithmetic` and is not empty; levels.size() == x.size().
GroupScale quantise_group(std::uint32_t bits, DType arithmetic, std::span<const float> x,
                          std::span<std::uint8_t> levels);
// level · scale + minimum.
void dequantise_group(GroupScale group, DType arithmetic, std::span<const std::uint8_t> levels, std::span<float> x);

// A row of k or v as the cache gives it back: rounded to a plain type, or quantised and dequantised. int8 and int4:
// code = round(x / scale), scale = largest |x| / most, most = 127 or 7; code · scale comes back, and zeros as zeros. Of
// KIVI, the row in float16, as it is until it leaves the residual window.
void round_trip_row(KvType type, std::span<float> row);
// KIVI: a row of v as it leaves the window, in groups along its channels; and a group of tokens' k, [tokens, width],
// tokens ≤ 32, in groups along the tokens. Both of float16 values.
void round_trip_aged_value(KvType type, std::span<float> row);
void round_trip_aged_keys(KvType type, std::span<float> rows, std::size_t width);

}  // namespace kvroof
