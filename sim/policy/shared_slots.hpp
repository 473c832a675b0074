// Slots that the heads of a layer share by where its highest scores lie, as AdaKV does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvroof {

// How many slots each head gets: `safe` for its best scores, and of the layer's `open` highest others as many as are
// its own. `scores` are by head, each by age; of equals the younger wins, then the later head. No NaN.
std::vector<std::uint32_t> share_slots(std::span<const std::span<const float>> scores, std::size_t safe,
                                       std::size_t open);

// The slots that kvpress makes safe in each head where it holds k on average: int(safeguard · k), at least one unless
// the safeguard is 0.
std::size_t safe_slots(double safeguard, std::uint32_t k);

}  // namespace kvroof
