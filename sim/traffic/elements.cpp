#include "sim/traffic/elements.hpp"

#include <algorithm>

namespace kvroof {
namespace {

using u64 = std::uint64_t;

void add_latent_attention(Elements& e, const ModelShape& s) {
  const u64 q_dim = u64{s.latent_nope_dim} + s.latent_rope_dim;
  const u64 q = s.heads * q_dim;
  if (s.latent_q_rank > 0) {
    e.add_linear(s.hidden, s.latent_q_rank);
    e.moved += 2 * u64{s.latent_q_rank};  // norm
    e.add_linear(s.latent_q_rank, q);
  } else {
    e.add_linear(s.hidden, q);
  }
  e.add_linear(s.hidden, s.head_dim);
  e.moved += 2 * u64{s.latent_rank};  // norm
  e.add_heads(s.heads, s.latent_nope_dim, s.latent_rank);
  e.add_heads(s.heads, s.latent_rank, s.latent_v_dim);
  e.add_linear(u64{s.heads} * s.latent_v_dim, s.hidden);
}

// Norms of q's heads and of the row are of their rotation.
void add_shared_row_attention(Elements& e, const ModelShape& s) {
  const u64 q = u64{s.heads} * s.head_dim;
  const u64 groups = s.compressed.out_groups, rank = s.compressed.out_rank;
  e.add_linear(s.hidden, s.latent_q_rank);
  e.moved += 2 * u64{s.latent_q_rank};  // norm
  e.add_linear(s.latent_q_rank, q);
  e.add_linear(s.hidden, s.head_dim);
  e.add_heads(groups, q / groups, rank);
  e.add_linear(groups * rank, s.hidden);
  e.moved += 2 * q;  // the output is turned back
}

// One token in the layers that make compressed rows, and keys of their index: a buffer takes what two linears make,
// and gives it back once.
Elements compressor_elements(const ModelShape& s) {
  Elements e;
  const auto add_rows = [&](u64 series) {
    e.add_linear(s.hidden, series, 2);
    e.moved += 4 * series;
  };
  for (const std::uint32_t rate : s.compressed.rates) {
    if (rate > 0) add_rows(s.compressed.series(rate, s.head_dim));
    if (rate == 0 || rate != s.compressed.chosen_rate) continue;
    const u64 query = u64{s.index.heads} * s.index.dim;
    add_rows(s.compressed.series(rate, s.index.dim));
    e.add_linear(s.latent_q_rank, query);
    e.add_linear(s.hidden, s.index.heads);
    e.moved += 2 * query;  // rotation
  }
  return e;
}

// One token between two mixers or MLPs, beside what one residual of them moves.
Elements stream_elements(const ModelShape& s) {
  Elements e;
  if (s.residual_streams < 2) return e;
  const u64 streams = s.residual_streams, all = streams * s.hidden;
  e.add_linear(all, (2 + streams) * streams);
  e.moved += all + s.hidden;           // the mean that goes in
  e.moved += 2 * (all - u64{s.hidden});  // what comes out, added to each stream
  e.products += 2 * all + streams * all;
  return e;
}

// One token in a layer that chooses: the products of its query, its key and a weight for each head; norm and rotation.
Elements index_elements(const ModelShape& s) {
  Elements e;
  if (!s.index) return e;
  const u64 query = u64{s.index.heads} * s.index.dim;
  e.add_linear(s.latent_q_rank, query);
  e.add_linear(s.hidden, s.index.dim);
  e.add_linear(s.hidden, s.index.heads);
  e.moved += 2 * u64{s.index.dim} + 2 * (query + s.index.dim);
  return e;
}

void add_attention(Elements& e, const ModelShape& s, const AttentionKind& a) {
  const u64 q = u64{a.heads} * a.head_dim;
  const u64 k = a.own_rows ? u64{a.kv_heads} * a.head_dim : 0;
  const u64 out = u64{a.heads} * a.v_head_dim;
  e.add_linear(s.hidden, q, s.attention_gate ? 2 : 1);
  if (a.own_rows) e.add_linear(s.hidden, k);
  if (a.own_rows && a.makes_v) e.add_linear(s.hidden, u64{a.kv_heads} * a.v_head_dim);
  if (s.head_gate) e.add_linear(s.hidden, a.heads);
  if (s.attention_gate || s.head_gate) e.moved += 3 * out;
  if (s.qk_norm != QkNorm::kNone) e.moved += 2 * (q + k);
  e.add_linear(out, s.hidden);
}

// One token in a layer of attention, without its norms and residuals.
Elements attention_elements(const ModelShape& s, const AttentionKind& a) {
  Elements e;
  if (s.latent()) {
    add_latent_attention(e, s);
  } else if (s.compressed) {
    add_shared_row_attention(e, s);
  } else {
    add_attention(e, s, a);
  }
  e.moved += u64{a.heads} * (u64{a.head_dim} + a.v_head_dim);  // attention itself
  return e;
}

// The same in a layer that holds a state.
Elements state_layer_elements(const ModelShape& s) {
  Elements e;
  each_state_product(s.state, s.hidden, [&](u64 in, u64 out) { e.add_linear(in, out); });
  const u64 convolved = 2 * convolved_channels(s.state, s.hidden);
  // A short convolution takes its two gates with it; of the others the gate is one of the output, with its norm.
  e.moved += convolved + (s.state.kind == StateKind::kShortConvolution ? 2 * u64{s.hidden} : 3 * s.state.values());
  return e;
}

Elements expert_layer_elements(const ModelShape& s) {
  Elements e;
  e.add_linear(s.hidden, s.experts);
  e.add_mlp(s, s.routed_width(), s.expert_ffn, s.experts_per_token);
  e.moved += s.experts_per_token * 3 * u64{s.routed_width()};
  if (s.expert_width > 0) {
    e.add_linear(s.hidden, s.expert_width);
    e.add_linear(s.expert_width, s.hidden);
  }
  if (s.shared_expert_ffn == 0) return e;
  e.add_mlp(s, s.hidden, s.shared_expert_ffn);
  if (s.shared_expert_gate) e.add_linear(s.hidden, 1);
  e.moved += 3 * u64{s.hidden};
  return e;
}

// Elements of q and k of one token that rotary embedding reads and writes, in all layers.
u64 turned_elements(const ModelShape& s) {
  if (s.position != PositionScheme::kRotaryHalfSplit && s.position != PositionScheme::kRotaryAdjacent) return 0;
  u64 elements = 0;
  for (const AttentionKind& a : attention_kinds(s)) {
    const u64 q = a.heads * (s.latent() ? u64{s.latent_nope_dim} + s.latent_rope_dim : u64{a.head_dim});
    elements += a.layers * 2 * (q + (a.own_rows ? u64{a.kv_heads} * a.head_dim : 0));
  }
  return elements * (s.layers - s.unturned_layers.size()) / std::max(s.layers, 1U);
}

// What each layer adds of an embedding of its own: the gate of its row and what they make, its norm and the residual.
Elements layer_embedding_elements(const ModelShape& s) {
  Elements e;
  e.add_linear(s.hidden, s.layer_embedding, 2);
  e.add_linear(s.layer_embedding, s.hidden);
  e.moved += 5 * u64{s.layer_embedding} + 5 * u64{s.hidden};
  return e;
}

}  // namespace

Elements token_elements(const ModelShape& s) {
  Elements e;
  e.moved = s.embedding_width + (s.embedding_norm ? 2 * u64{s.hidden} : 0);
  if (s.embedding_width != s.hidden) e.add_linear(s.embedding_width, s.hidden);
  for (const AttentionKind& kind : attention_kinds(s)) {
    if (kind.layers > 0) e.add(attention_elements(s, kind), kind.layers);
  }
  e.add(s.compressed ? compressor_elements(s) : index_elements(s), s.compressed ? 1 : s.index.layers);
  if (s.state.layers > 0) e.add(state_layer_elements(s), s.state.layers);
  const u64 parts = u64{s.mixers()} + s.mlps();  // each with a half of the norms, and a residual
  e.moved += parts * (s.norms_per_layer + 3) * s.hidden;
  e.add(stream_elements(s), parts);
  e.moved += turned_elements(s);
  if (s.layer_embedding > 0) e.add(layer_embedding_elements(s), s.layers);
  e.products += u64{s.layers} * s.layer_extras + s.model_extras;
  const u64 sharing = s.sharing_ffn > 0 ? s.sharing_layers : 0;
  Elements dense, sharing_dense;
  dense.add_mlp(s, s.hidden, s.ffn);
  sharing_dense.add_mlp(s, s.hidden, s.sharing_ffn);
  e.add(dense, s.mlps() - s.expert_layers() - sharing);
  e.add(sharing_dense, sharing);
  if (s.experts > 0) e.add(expert_layer_elements(s), s.expert_layers());
  return e;
}

Elements logit_elements(const ModelShape& s) {
  Elements e;
  if (s.final_norm) e.moved += 2 * u64{s.hidden};
  if (s.embedding_width != s.hidden) e.add_linear(s.hidden, s.embedding_width);
  e.add_linear(s.embedding_width, s.vocab);
  return e;
}

}  // namespace kvroof
