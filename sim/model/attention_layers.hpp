// Layers of attention that are not all alike: some have other heads, or attend to the rows of an earlier layer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace kvroof {

struct ModelShape;

// Heads of some of a model's layers, where these differ from the others' (Gemma 4 and MiMo-V2-Flash: those that see
// everything). Such layers have no sinks.
struct OtherAttention {
  std::vector<std::uint32_t> layers;  // which of those that attend, ascending; empty: all are alike
  std::uint32_t heads = 0;            // as in ModelShape
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t v_head_dim = 0;
  bool v_of_k = false;  // one projection makes k and v, which are cached as two rows all the same: only k is turned
};

// Layers that are alike.
struct AttentionKind {
  std::uint32_t layers = 0;
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  bool own_rows = true;   // or it attends to those of an earlier layer, and projects q alone
  bool makes_v = true;    // by a projection of its own
  bool sinks = false;
};

// All kinds of a shape, some of them perhaps without a layer.
std::array<AttentionKind, 4> attention_kinds(const ModelShape& shape);

// Why no layers can be like this, or nothing.
std::string attention_problem(const ModelShape& shape);

}  // namespace kvroof
