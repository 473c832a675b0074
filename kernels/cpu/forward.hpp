// The forward pass of a decoder-only transformer, written once over Ops; attention and the KV cache are the caller's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/engine/model.hpp"
#include "kernels/engine/ops.hpp"
#include "sim/core/ids.hpp"

namespace kvroof {

// Called once a layer, in order: stores k and v and attends. q may be changed (rounded to the type of the cache).
class AttentionStage {
 public:
  virtual ~AttentionStage() = default;
  // q [tokens, heads, head_dim] and k [tokens, kv_heads, head_dim] after rotary embedding, v [tokens, kv_heads,
  // v_head_dim], out [tokens, heads, v_head_dim].
  virtual void attend(LayerId layer, std::span<float> q, std::span<const float> k, std::span<const float> v,
                      std::span<float> out) = 0;
};

class Forward {
 public:
  // Both must outlive this object.
  Forward(const Model& model, Ops& ops) : model_(model), ops_(ops) {}

  // One pass over ids[t] at positions[t]; logits [S, vocab] of the last S ≤ ids.size() tokens,
  // S = logits.size() / vocab.
  void run(std::span<const std::int64_t> ids, std::span<const TokenPos> positions, AttentionStage& stage,
           std::span<float> logits);

 private:
  void attention_block(LayerId layer, std::span<const TokenPos> positions, AttentionStage& stage);
  void mlp_block(LayerId layer);
  void resize(std::size_t tokens);

  const Model& model_;
  Ops& ops_;
  std::vector<float> x_;       // the residual stream, [tokens, hidden]
  std::vector<float> normed_;  // [tokens, hidden]
  std::vector<float> q_, k_, v_, attended_;
  std::vector<float> gate_, up_;
  std::vector<float> block_;   // output of a block, [tokens, hidden]
};

}  // namespace kvroof
