// Makes a trace of q, k, v tensors from any framework.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "traces/manifest.hpp"

namespace kvroof {

struct ImportQkvOptions {
  std::uint32_t prompt = 0;      // 1 ≤ prompt ≤ n
  std::optional<double> scale;   // default 1/√d
  bool alibi = false;            // standard slopes for the number of query heads
  RotaryInfo rotary = {};        // how q and k were turned, where that is known; dims 0: the whole width
  float softcap = 0;             // of logits; 0: none
  // Tokens that a query sees, its own included, of the first layers; repeated over all of them, at most one for each.
  // 0: all. Empty: all 0.
  std::vector<std::uint32_t> windows = {};
};

// `file` holds q [layers, heads, n, d] after rotary, k and v [layers, kv_heads, n, d] (the layer dimension may be
// absent), f32, bf16 or f16, all of one type, which is kept; rows of v may have another width. With a rotary embedding
// a tensor inverse_frequencies [dims / 2] of f32 takes the place of theta. A tensor sinks [layers, heads] of f32 holds
// the attention sinks of a model that has some. Other tensors are ignored. Throws Error naming the tensor and the
// shapes on anything else, and on NaN or infinity; then nothing is left at `out`.
void import_qkv(const std::filesystem::path& file, const ImportQkvOptions& options, const std::filesystem::path& out);

}  // namespace kvroof
