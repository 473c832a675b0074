#include "sim/model/model_shape.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "sim/model/residual_streams.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

u64 norm_parameters(const ModelShape& s) { return u64{s.hidden} * (s.norm_bias ? 2 : 1); }

u64 qk_norm_parameters(const ModelShape& s, const AttentionKind& a) {
  const u64 kv_heads = a.own_rows ? a.kv_heads : 0;
  switch (s.qk_norm) {
    case QkNorm::kHead: return (a.own_rows ? 2 : 1) * u64{a.head_dim};
    case QkNorm::kEachHead:
    case QkNorm::kWhole: return (a.heads + kv_heads) * a.head_dim;
    default: return 0;
  }
}

// The latent's projections and norms: q (at once, or through its own latent), kv down, k and v up, out.
u64 latent_attention_parameters(const ModelShape& s) {
  const u64 hidden = s.hidden;
  const u64 q = u64{s.heads} * (u64{s.latent_nope_dim} + s.latent_rope_dim);
  const u64 q_rank = s.latent_q_rank;
  const u64 q_parameters = q_rank > 0 ? hidden * q_rank + q_rank + q_rank * q : hidden * q;
  const u64 down = hidden * (u64{s.latent_rank} + s.latent_rope_dim) + s.latent_rank;
  const u64 up = u64{s.heads} * (u64{s.latent_nope_dim} + s.latent_v_dim) * s.latent_rank;
  return q_parameters + down + up + u64{s.heads} * s.latent_v_dim * hidden;
}

u64 attention_parameters(const ModelShape& s, const AttentionKind& a) {
  if (s.latent()) return latent_attention_parameters(s);
  if (s.compressed) return shared_row_attention_parameters(s) + (a.sinks ? a.heads : 0);
  const u64 hidden = s.hidden;
  const u64 q = u64{a.heads} * a.head_dim;
  const u64 k = a.own_rows ? u64{a.kv_heads} * a.head_dim : 0;
  const u64 v = a.own_rows && a.makes_v ? u64{a.kv_heads} * a.v_head_dim : 0;
  const u64 out = u64{a.heads} * a.v_head_dim;
  const u64 gated_q = s.attention_gate ? 2 * q : q;
  return hidden * (gated_q + k + v + out + (s.head_gate ? a.heads : 0)) + (s.qkv_bias ? q + k + v : 0) +
         (s.out_bias ? hidden : 0) + qk_norm_parameters(s, a) + (a.sinks ? a.heads : 0);
}

// Those of each layer's embedding, but for its table: a gate and a way back with its norm, and the way from the token's
// embedding.
u64 layer_embedding_parameters(const ModelShape& s) {
  const u64 width = s.layer_embedding;
  return width == 0 ? 0 : s.layers * (3 * width * s.hidden + norm_parameters(s)) + width;
}

// Of an MLP whose input and output are `width` wide.
u64 mlp_parameters(const ModelShape& s, u64 ffn, u64 width) {
  const u64 inward = s.mlp == MlpKind::kGated ? 2 : 1;  // gate and up, or up alone
  const u64 matrices = (inward + 1) * width * ffn;
  return matrices + (s.mlp_bias ? inward * ffn + width : 0);
}

// Routers, shared experts and, where experts are narrower than the model, the ways there and back.
u64 beside_routed_parameters(const ModelShape& s) {
  const u64 shared = s.shared_expert_ffn > 0 ? mlp_parameters(s, s.shared_expert_ffn, s.hidden) : 0;
  const u64 routers = u64{s.hidden} * (s.experts + (s.shared_expert_gate ? 1 : 0));
  const u64 logit_biases = s.router_logit_bias ? s.experts : 0;
  return routers + logit_biases + shared + 2 * u64{s.expert_width} * s.hidden;
}

u64 all_stream_parameters(const ModelShape& s) {
  return (u64{s.mixers()} + s.mlps()) * stream_parameters(s.residual_streams, s.hidden) +
         last_stream_parameters(s.residual_streams, s.hidden);
}

}  // namespace

u64 expert_parameters(const ModelShape& s) { return mlp_parameters(s, s.expert_ffn, s.routed_width()); }
u64 routed_parameters(const ModelShape& s) {
  return s.experts > 0 ? s.expert_layers() * s.experts * expert_parameters(s) : 0;
}

u64 layers_parameters(const ModelShape& s) {
  const u64 experts = s.expert_layers(), dense = s.mlps() - experts;
  u64 total = s.state.layers * state_parameters(s.state, s.hidden) + layer_embedding_parameters(s);
  for (const AttentionKind& kind : attention_kinds(s)) total += kind.layers * attention_parameters(s, kind);
  total += s.compressed ? compressor_parameters(s) : s.index.layers * s.index.parameters(s.hidden, s.latent_q_rank);
  total += u64{s.layers} * s.layer_extras + s.model_extras;
  total += u64{s.norms_per_layer} * (s.mixers() + s.mlps()) / 2 * norm_parameters(s);
  const u64 sharing = s.sharing_ffn > 0 ? s.sharing_layers : 0;
  if (dense > 0) total += (dense - sharing) * mlp_parameters(s, s.ffn, s.hidden);
  if (sharing > 0) total += sharing * mlp_parameters(s, s.sharing_ffn, s.hidden);
  if (experts > 0) total += experts * beside_routed_parameters(s) + routed_parameters(s);
  return total + s.biased_routers() * s.experts + all_stream_parameters(s);
}

u64 exact_parameters(const ModelShape& s) {
  return s.state.layers * exact_state_parameters(s.state) +
         s.biased_routers() * s.experts + compressor_biases(s) + all_stream_parameters(s) +
         (s.attention_sinks ? (s.layers - s.other.layers.size()) * s.heads : 0);
}

u64 head_parameters(const ModelShape& s) { return u64{s.vocab} * s.embedding_width + (s.head_bias ? s.vocab : 0); }

u64 embedding_parameters(const ModelShape& s) {
  return u64{s.vocab} * s.embedding_width + u64{s.position_rows} * s.hidden +
         u64{s.layer_embedding_rows} * s.layers * s.layer_embedding;
}

u64 embedding_row(const ModelShape& s) {
  return u64{s.embedding_width} + (s.position_rows > 0 ? s.hidden : 0) + u64{s.layers} * s.layer_embedding;
}

u64 projection_parameters(const ModelShape& s) {
  return s.embedding_width == s.hidden ? 0 : 2 * u64{s.embedding_width} * s.hidden;
}

u64 norm_vectors_outside_layers(const ModelShape& s) {
  return norm_parameters(s) * ((s.embedding_norm ? 1 : 0) + (s.final_norm ? 1 : 0));
}

u64 parameter_count(const ModelShape& s) {
  u64 total = embedding_parameters(s) + projection_parameters(s);
  total += layers_parameters(s) + norm_vectors_outside_layers(s);
  if (s.tied_head) return total + (s.head_bias ? s.vocab : 0);
  return total + head_parameters(s);
}

u64 active_parameters(const ModelShape& s) {
  u64 layers = layers_parameters(s);
  if (s.experts > 0) layers -= s.expert_layers() * (s.experts - s.experts_per_token) * expert_parameters(s);
  return embedding_row(s) + projection_parameters(s) + layers + norm_vectors_outside_layers(s) + head_parameters(s);
}

Bytes weight_bytes(const ModelShape& shape, DType type) {
  const u64 exact = exact_parameters(shape);
  return Bytes((parameter_count(shape) - exact) * size_of(type) + exact * sizeof(float));
}

namespace {

// One KV head of one token.
KvBytes head_row(const ModelShape& s, KvType type) {
  return type.row(s.head_dim) + type.row(s.row_width() - s.head_dim);
}

// `rows` rows of one head, the newest of so many.
u64 newest_bytes(const ModelShape& s, KvType type, u64 all, u64 rows) {
  if (!type.by_age()) return rows * head_row(s, type).total();
  return aged_bytes(type, s.head_dim, s.row_width() - s.head_dim, kivi_rows(all, rows)).total();
}

// Compressed rows of all layers, with their keys where an index chooses.
u64 compressed_bytes(const ModelShape& s, KvType type, u64 tokens) {
  u64 bytes = 0;
  for (const std::uint32_t rate : s.compressed.rates) {
    if (rate == 0) continue;
    const u64 rows = tokens / rate;
    bytes += newest_bytes(s, type, rows, rows) + (rate == s.compressed.chosen_rate ? rows * s.index.key().total() : 0);
  }
  return bytes;
}

Bytes compressed_bytes_per_token(const ModelShape& s, KvType type) {
  double bytes = 0;
  for (const std::uint32_t rate : s.compressed.rates) {
    const u64 key = rate == s.compressed.chosen_rate ? s.index.key().total() : 0;
    if (rate > 0) bytes += static_cast<double>(head_row(s, type).total() + key) / rate;
  }
  return Bytes(static_cast<u64>(std::ceil(bytes)));
}

}  // namespace

u64 rows_of_token(const ModelShape& s) {
  u64 rows = 0;
  for (std::uint32_t layer = 0; layer < s.layers - s.sharing_layers; ++layer) rows += s.rows_of_token(layer);
  return rows;
}

Bytes kv_bytes_per_token(const ModelShape& s, KvType type) {
  if (s.compressed) return compressed_bytes_per_token(s, type);
  return Bytes(rows_of_token(s) * head_row(s, type).total() + s.index.layers * s.index.key().total());
}

Bytes kv_bytes(const ModelShape& s, KvType type, u64 tokens) {
  u64 bytes = 0;
  for (std::uint32_t layer = 0; layer < s.layers - s.sharing_layers; ++layer) {
    const u64 rows = s.window(layer) > 0 ? std::min<u64>(tokens, s.window(layer)) : tokens;
    bytes += s.rows_of_token(layer) * newest_bytes(s, type, tokens, rows);
  }
  if (s.compressed) return Bytes(bytes + compressed_bytes(s, type, tokens));
  return Bytes(bytes + tokens * s.index.layers * s.index.key().total());
}

Bytes state_bytes(const ModelShape& s, DType weights) {
  return Bytes(u64{s.state.layers} * state_bytes(s.state, s.hidden, weights) + compressor_bytes(s));
}

namespace {

// With these limits no product of sizes can wrap around 64 bits.
constexpr std::uint32_t kWide = 1U << 20;

std::string layout_problem(const ModelShape& s) {
  if (s.norms_per_layer > 16) return fmt::format("norms_per_layer is {}, expected at most 16", s.norms_per_layer);
  if (!s.layer_windows.empty() && s.layer_windows.size() != s.layers) {
    return fmt::format("layer_windows has {} entries, expected one for each of the {} layers", s.layer_windows.size(),
                       s.layers);
  }
  const std::vector<std::uint32_t>& unturned = s.unturned_layers;
  if (!std::ranges::is_sorted(unturned, std::less_equal()) || (!unturned.empty() && unturned.back() >= s.layers)) {
    return fmt::format("unturned_layers: expected ascending numbers of layers, each below {}", s.layers);
  }
  if (s.mlp_layers > 1U << 13) return fmt::format("mlp_layers is {}, expected at most {}", s.mlp_layers, 1U << 13);
  if (s.experts > 0 && s.dense_layers > s.mlps()) {
    return fmt::format("dense_layers is {}, expected at most the {} layers with an MLP", s.dense_layers, s.mlps());
  }
  if (s.expert_width > 0 && s.experts == 0) return "expert_width is there, but no experts";
  if (s.expert_width > kWide) return fmt::format("expert_width is {}, expected at most {}", s.expert_width, kWide);
  if (std::string problem = state_problem(s.state); !problem.empty()) return problem;
  if (s.state.beside_attention && s.state.layers > s.layers) {
    return fmt::format("state_layers is {}, but only {} layers attend beside them", s.state.layers, s.layers);
  }
  if (std::string problem = attention_problem(s); !problem.empty()) return problem;
  if (std::string problem = compressed_problem(s); !problem.empty()) return problem;
  if (s.residual_streams > 64) return fmt::format("residual_streams is {}, expected at most 64", s.residual_streams);
  if (s.hashed_layers > s.expert_layers()) {
    return fmt::format("hashed_layers is {}, expected at most the {} layers of experts", s.hashed_layers,
                       s.expert_layers());
  }
  if (s.experts > 0 && (s.experts > 1U << 16 || s.experts_per_token == 0 || s.experts_per_token > s.experts ||
                        s.expert_ffn == 0 || s.expert_ffn > kWide || s.shared_expert_ffn > kWide)) {
    return fmt::format("{} experts of size {}, {} a token: expected at most 65536 experts and 1 to all of them a token",
                       s.experts, s.expert_ffn, s.experts_per_token);
  }
  std::string of_index = index_problem(s.index, s.layers, s.latent() || s.compressed ? s.latent_q_rank : 0);
  if (!of_index.empty()) return of_index;
  if (!s.latent()) return {};
  for (const std::uint32_t size : {s.latent_rank, s.latent_nope_dim, s.latent_rope_dim, s.latent_v_dim}) {
    if (size == 0 || size > 1U << 16) return fmt::format("a latent size is {}, expected 1 to 65536", size);
  }
  if (s.latent_q_rank > kWide || s.kv_heads != 1 || s.head_dim != s.latent_rank + s.latent_rope_dim ||
      s.v_head_dim != s.latent_rank) {
    return "latent attention has one KV head of latent_rank + latent_rope_dim, whose first latent_rank elements are v";
  }
  return {};
}

}  // namespace

std::string shape_problem(const ModelShape& s) {
  struct Size {
    std::string_view name;
    std::uint32_t value, highest;
  };
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
  return layout_problem(s);
}

}  // namespace kvroof
