// Calls of decode attention over caches that no cache of the chip holds, to be timed.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/measure/cold_memory.hpp"
#include "kernels/cuda/measure/timing.hpp"

namespace kvroof::cuda {

struct AttentionWork {
  std::uint32_t heads = 32, kv_heads = 32, dim = 128;
  Stored type = Stored::kBF16;
  std::vector<std::uint32_t> lengths;  // of each sequence
  bool rows = false;                   // logits are kept, as policies that score need them
  std::optional<ScoreKind> scores;     // with rows: scores are updated, and each head's victim is found
  bool apart = false;                  // by launches of their own, not by the one that attends

  [[nodiscard]] std::uint32_t row_bytes() const {
    return dim * (type == Stored::kInt8 ? 8 : type == Stored::kInt4 ? 4 : 16) / 8;
  }
  [[nodiscard]] std::size_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}); }
  // Keys, values and their scales, read once.
  [[nodiscard]] std::size_t bytes() const {
    const bool scaled = type == Stored::kInt8 || type == Stored::kInt4;
    return tokens() * kv_heads * 2 * (row_bytes() + (scaled ? sizeof(float) : 0));
  }
};

// One call, launched in turn on as many caches as cold data need; nothing where the device has no room for them. Throws
// Error when it refuses.
std::optional<Measured> time_attention(const AttentionWork& work, const DeviceFacts& device, const CardFacts& card,
                                       double seconds);

}  // namespace kvroof::cuda
