#include "sim/model/attention_layers.hpp"

#include <algorithm>

#include "sim/model/model_shape.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

constexpr std::uint32_t kMostInHead = 1U << 16;
constexpr u64 kWidestHeads = 1U << 20;

std::string heads_problem(const ModelShape& s) {
  const OtherAttention& o = s.other;
  if (!std::is_sorted(o.layers.begin(), o.layers.end(), std::less_equal()) || o.layers.back() >= s.layers) {
    return fmt::format("other_layers: expected ascending numbers of layers, each below {}", s.layers);
  }
  for (const std::uint32_t size : {o.heads, o.kv_heads, o.head_dim, o.v_head_dim}) {
    if (size > 0 && size <= kMostInHead) continue;
    return fmt::format("a size of other_layers is {}, expected 1 to {}", size, kMostInHead);
  }
  if (o.heads % o.kv_heads != 0) {
    return fmt::format("other_heads is {}, not a multiple of other_kv_heads {}", o.heads, o.kv_heads);
  }
  if (u64{o.heads} * std::max(o.head_dim, o.v_head_dim) > kWidestHeads) {
    return fmt::format("heads of other_layers are wider than {} together", kWidestHeads);
  }
  if (s.latent()) return "other_layers beside latent attention are not supported";
  const bool in_proportion = u64{o.head_dim} * s.v_head_dim == u64{o.v_head_dim} * s.head_dim;
  if (u64{o.kv_heads} * o.head_dim % s.head_dim != 0 || !in_proportion) {
    return fmt::format("rows of {} KV heads of {} + {} are not so many whole rows of {} + {}", o.kv_heads, o.head_dim,
                       o.v_head_dim, s.head_dim, s.v_head_dim);
  }
  return {};
}

}  // namespace

std::array<AttentionKind, 4> attention_kinds(const ModelShape& s) {
  const OtherAttention& o = s.other;
  const std::uint32_t first_sharing = s.layers - s.sharing_layers;
  const auto others = static_cast<std::uint32_t>(o.layers.size());
  const auto others_own = static_cast<std::uint32_t>(
      std::lower_bound(o.layers.begin(), o.layers.end(), first_sharing) - o.layers.begin());
  AttentionKind main{first_sharing - others_own, s.heads, s.kv_heads, s.head_dim, s.v_head_dim};
  main.sinks = s.attention_sinks;
  AttentionKind other{others_own, o.heads, o.kv_heads, o.head_dim, o.v_head_dim};
  other.makes_v = !o.v_of_k;
  AttentionKind main_sharing = main, other_sharing = other;
  main_sharing.layers = s.sharing_layers - (others - others_own);
  other_sharing.layers = others - others_own;
  main_sharing.own_rows = other_sharing.own_rows = false;
  return {main, main_sharing, other, other_sharing};
}

std::string attention_problem(const ModelShape& s) {
  if (!s.other.layers.empty()) {
    if (std::string problem = heads_problem(s); !problem.empty()) return problem;
  } else if (s.other.heads > 0 || s.other.kv_heads > 0 || s.other.head_dim > 0 || s.other.v_head_dim > 0) {
    return "other_layers is missing, but their sizes are there";
  }
  if (s.sharing_layers >= s.layers) {
    return fmt::format("sharing_layers is {}, expected fewer than the {} layers", s.sharing_layers, s.layers);
  }
  if (s.sharing_layers > 0 && s.latent()) return "sharing_layers of latent attention are not supported";
  if (s.sharing_ffn > kWidestHeads) {
    return fmt::format("sharing_ffn is {}, expected at most {}", s.sharing_ffn, kWidestHeads);
  }
  if (s.sharing_ffn > 0 && (s.sharing_layers == 0 || s.experts > 0 || s.mlps() != s.layers)) {
    return "sharing_ffn is there, but no sharing_layers with a dense MLP each";
  }
  if (s.layer_embedding > kMostInHead || s.layer_embedding_rows > 1U << 24 ||
      (s.layer_embedding > 0) != (s.layer_embedding_rows > 0)) {
    return fmt::format("layer_embedding is {} of {} rows, expected both, at most {} and 2^24", s.layer_embedding,
                       s.layer_embedding_rows, kMostInHead);
  }
  return {};
}

}  // namespace kvroof
