#include "sim/model/model_shape.hpp"

#include <algorithm>

namespace kvroof {
namespace {

using u64 = std::uint64_t;

u64 norm_parameters(const ModelShape& s) { return u64{s.hidden} * (s.norm_bias ? 2 : 1); }

u64 attention_parameters(const ModelShape& s) {
  const u64 hidden = s.hidden;
  const u64 q = u64{s.heads} * s.head_dim;
  const u64 k = u64{s.kv_heads} * s.head_dim;
  const u64 v = u64{s.kv_heads} * s.v_head_dim;
  const u64 out = u64{s.heads} * s.v_head_dim;
  return hidden * (q + k + v + out) + (s.qkv_bias ? q + k + v : 0) + (s.out_bias ? hidden : 0);
}

u64 mlp_parameters(const ModelShape& s) {
  const u64 inward = s.mlp == MlpKind::kGated ? 2 : 1;  // gate and up, or up alone
  const u64 matrices = (inward + 1) * s.hidden * s.ffn;
  return matrices + (s.mlp_bias ? inward * s.ffn + s.hidden : 0);
}

}  // namespace

u64 layer_parameters(const ModelShape& s) {
  return attention_parameters(s) + mlp_parameters(s) + s.norms_per_layer * norm_parameters(s);
}

u64 head_parameters(const ModelShape& s) { return u64{s.vocab} * s.embedding_width + (s.head_bias ? s.vocab : 0); }

u64 projection_parameters(const ModelShape& s) {
  return s.embedding_width == s.hidden ? 0 : 2 * u64{s.embedding_width} * s.hidden;
}

u64 norm_vectors_outside_layers(const ModelShape& s) {
  return norm_parameters(s) * ((s.embedding_norm ? 1 : 0) + (s.final_norm ? 1 : 0));
}

u64 parameter_count(const ModelShape& s) {
  u64 total = u64{s.vocab} * s.embedding_width + u64{s.position_rows} * s.hidden + projection_parameters(s);
  total += s.layers * layer_parameters(s) + norm_vectors_outside_layers(s);
  if (s.tied_head) return total + (s.head_bias ? s.vocab : 0);
  return total + head_parameters(s);
}

Bytes weight_bytes(const ModelShape& shape, DType type) { return Bytes(parameter_count(shape) * size_of(type)); }

Bytes kv_bytes_per_token(const ModelShape& s, DType type) {
  return Bytes(u64{s.layers} * s.kv_heads * (u64{s.head_dim} + s.v_head_dim) * size_of(type));
}

std::string shape_problem(const ModelShape& s) {
  struct Size {
    std::string_view name;
    std::uint32_t value, highest;
  };
  // With these limits no product of sizes can wrap around 64 bits.
  constexpr std::uint32_t kWide = 1U << 20;
  for (const Size& size :
       {Size{"layers", s.layers, 1U << 12}, Size{"hidden", s.hidden, kWide}, Size{"heads", s.heads, 1U << 16},
        Size{"kv_heads", s.kv_heads, 1U << 16}, Size{"head_dim", s.head_dim, 1U << 16},
        Size{"v_head_dim", s.v_head_dim, 1U << 16}, Size{"ffn", s.ffn, kWide}, Size{"vocab", s.vocab, 1U << 24},
        Size{"max_positions", s.max_positions, 1U << 30}, Size{"embedding_width", s.embedding_width, kWide}}) {
    if (size.value == 0 || size.value > size.highest) {
      return fmt::format("{} is {}, expected 1 to {}", size.name, size.value, size.highest);
    }
  }
  if (s.heads % s.kv_heads != 0) return fmt::format("heads is {}, not a multiple of kv_heads {}", s.heads, s.kv_heads);
  if (u64{s.heads} * s.head_dim > kWide || u64{s.heads} * s.v_head_dim > kWide) {
    return fmt::format("heads · head_dim is {}, expected at most {}", u64{s.heads} * std::max(s.head_dim, s.v_head_dim),
                       kWide);
  }
  if (s.position_rows > 1U << 30) return fmt::format("position_rows is {}, expected at most 2^30", s.position_rows);
  if (s.norms_per_layer > 16) return fmt::format("norms_per_layer is {}, expected at most 16", s.norms_per_layer);
  return {};
}

}  // namespace kvroof
