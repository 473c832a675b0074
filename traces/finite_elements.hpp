// Elements of tensors that are no numbers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "sim/core/dtype.hpp"

namespace kvroof {

// Index of the first infinity or NaN, if any: one of them would make every later number meaningless.
std::optional<std::size_t> first_not_finite(DType type, std::span<const std::byte> bytes);
// Index of the first element that is not finite or whose magnitude is 2^exponent or more; 0 ≤ exponent ≤ 127.
std::optional<std::size_t> first_beyond(DType type, std::span<const std::byte> bytes, int exponent);

}  // namespace kvroof
