// Residencies of policies whose counts follow from their definition, for tests.
#pragma once

#include <algorithm>

#include "sim/core/residency.hpp"
#include "sim/model/model_shape.hpp"

namespace kvroof::synthetic {

struct Lengths {
  std::uint32_t prompt, output;
};

// One layer, small enough to count by hand: q 16, k 8, v 8, o 16, MLP 72, two norms 4 each; final norm 4, head 40, an
// embedding row 4.
inline ModelShape small_llama() {
  ModelShape s;
  s.layers = 1;
  s.hidden = 4;
  s.heads = 2;
  s.kv_heads = 1;
  s.head_dim = s.v_head_dim = 2;
  s.ffn = 6;
  s.vocab = 10;
  s.embedding_width = 4;
  s.max_positions = 16;
  return s;
}

inline Residency empty(Lengths n, std::uint32_t layers, std::uint32_t heads) {
  Residency r;
  r.policy = "synthetic";
  r.prompt = n.prompt;
  r.steps = n.output;
  r.layers = layers;
  r.storage_heads = r.kv_heads = heads;
  r.cells.resize((std::size_t{n.output} + 1) * layers);
  return r;
}

// One sequence that keeps `kept` rows of the prompt and then never holds more than `limit` (UINT32_MAX: all).
inline Residency budgeted(Lengths n, std::uint32_t layers, std::uint32_t heads, std::uint64_t kept,
                          std::uint64_t limit) {
  Residency r = empty(n, layers, heads);
  const std::uint64_t prompt = n.prompt;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    LayerCounts& first = r.at(0, layer);
    first.attended = heads * prompt * (prompt + 1) / 2;
    first.written = heads * prompt;
    first.resident = heads * kept;
    first.moved = kept < prompt ? heads * kept : 0;
    first.allocated = heads * prompt;
    std::uint64_t present = kept;
    for (std::uint32_t step = 1; step <= n.output; ++step) {
      LayerCounts& c = r.at(step, layer);
      c.attended = c.allocated = heads * (present + 1);
      c.written = heads;
      present = std::min(present + 1, limit);
      c.resident = heads * present;
    }
  }
  return r;
}

inline Residency full(Lengths n, std::uint32_t layers = 2, std::uint32_t heads = 4) {
  return budgeted(n, layers, heads, n.prompt, UINT32_MAX);
}

// Full attention on layers of which each sees so many tokens (0: all).
inline Residency windowed(Lengths n, std::vector<std::uint32_t> windows, std::uint32_t heads) {
  const auto layers = static_cast<std::uint32_t>(windows.size());
  Residency r = empty(n, layers, heads);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const std::uint64_t most = windows[layer] == 0 ? UINT64_MAX : windows[layer];
    for (std::uint64_t i = 1; i <= n.prompt; ++i) r.at(0, layer).attended += heads * std::min(i, most);
    for (std::uint32_t step = 0; step <= n.output; ++step) {
      LayerCounts& c = r.at(step, layer);
      c.resident = c.allocated = heads * std::min<std::uint64_t>(n.prompt + step, most);
      c.written = heads * (step == 0 ? n.prompt : 1);
      if (step > 0) c.attended = c.resident;
    }
    if (n.prompt > most) r.at(0, layer).moved = r.at(0, layer).resident;
  }
  r.layer_windows = std::move(windows);
  return r;
}

// A static budget of a fraction of the prompt.
inline Residency fraction(Lengths n, double share, std::uint32_t layers = 2, std::uint32_t heads = 4) {
  const auto kept = static_cast<std::uint64_t>(share * n.prompt);
  return budgeted(n, layers, heads, kept, kept);
}

// Drops half of the budget at once whenever it is exceeded (Scissorhands with its published m = B / 2).
inline Residency sawtooth(Lengths n, std::uint64_t budget, std::uint32_t layers = 1, std::uint32_t heads = 1) {
  Residency r = budgeted(n, layers, heads, budget, budget);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    std::uint64_t present = budget;
    for (std::uint32_t step = 1; step <= n.output; ++step) {
      LayerCounts& c = r.at(step, layer);
      c.attended = heads * (present + 1);
      present += 1;
      if (present > budget) {
        present -= budget / 2;
        c.moved = heads * present;
      }
      c.resident = heads * present;
    }
  }
  return r;
}

}  // namespace kvroof::synthetic
