// The forward pass of a decoder-only transformer, written once over Ops; attention and the KV cache are the caller's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/experts.hpp"
#include "kernels/cpu/state_layer.hpp"
#include "kernels/engine/backend.hpp"
#include "kernels/engine/model.hpp"
#include "kernels/engine/ops.hpp"
#include "sim/core/ids.hpp"

namespace kvroof {

// Called once a layer, in order: stores k and v and attends. q may be changed (rounded to the type of the cache).
class AttentionStage {
 public:
  virtual ~AttentionStage() = default;
  // q [tokens, heads, head_dim] and k [tokens, kv_heads, head_dim] after rotary embedding, v [tokens, kv_heads,
  // v_head_dim], out [tokens, heads, v_head_dim]. Of a latent model, k is the latent row and v its leading part.
  virtual void attend(LayerId layer, std::span<float> q, std::span<const float> k, std::span<const float> v,
                      std::span<float> out) = 0;
  // Called once for each layer that holds a state, in order (`layer` counts them alone): whose states they are.
  virtual std::span<const StatePart> states(std::uint32_t layer) = 0;
};

// One pass of tokens.
struct ForwardTokens {
  std::span<const std::int64_t> ids;
  std::span<const TokenPos> positions;       // [ids]
  std::span<const std::uint32_t> prompts;    // [ids]: tokens in the prompt of each token's sequence
};

// Tokens whose logits are computed at once when those of a whole prompt are asked for: 4 MiB of them, but enough for
// reading the head once a block to be worth it.
constexpr std::uint32_t logit_block(std::uint32_t vocab) {
  return std::clamp((1U << 20) / vocab, 32U, 256U);  // floats
}

class Forward {
 public:
  // Both must outlive this object.
  Forward(const Model& model, Ops& ops) : model_(model), ops_(ops), experts_(model, ops), states_(model, ops) {}

  // Logits [S, vocab] of the last S ≤ ids.size() tokens, S = logits.size() / vocab. `all`, unless empty, is handed the
  // logits of every token in blocks of logit_block(vocab) tokens; S is then at most 1.
  void run(const ForwardTokens& tokens, AttentionStage& stage, std::span<float> logits, const LogitsSink& all);
  // Routed experts that passed tokens in the last run, summed over layers; once.
  std::uint64_t take_experts() { return experts_.take_passed(); }
  void set_route_reviewer(RouteReviewer* reviewer) { experts_.set_reviewer(reviewer); }  // may be null; not owned

 private:
  // A mixer and an MLP.
  struct Block {
    std::uint32_t index = 0;
    bool attends = true;       // or holds a state
    std::uint32_t number = 0;  // among those that do so
  };
  void block(const Block& block, const ForwardTokens& tokens, AttentionStage& stage);
  // block_ = the output of the block's mixer for its input.
  void mix(const Block& block, std::span<const float> in, const ForwardTokens& tokens, AttentionStage& stage);
  void embed(const ForwardTokens& tokens);
  // What the head multiplies for the last `rows` tokens, and its product.
  std::span<const float> head_input(std::size_t rows);
  void head(std::span<const float> in, std::span<float> logits);
  void all_logits(std::size_t tokens, std::span<float> last, const LogitsSink& all);
  // x_ += block.
  void add(std::span<const float> block);
  void attention(LayerId layer, std::span<const float> in, const ForwardTokens& tokens, AttentionStage& stage);
  // in → q_, k_, v_, as attention takes them.
  void project_heads(LayerId layer, std::span<const float> in, const ForwardTokens& tokens);
  // The same for latent attention, where all heads share one row of k; forward_latent.cpp.
  void project_latent(LayerId layer, std::span<const float> in, const ForwardTokens& tokens);
  void make_latent_rows(LayerId layer, std::span<const float> in, const ForwardTokens& tokens);
  void make_latent_queries(LayerId layer, std::span<const float> in, const ForwardTokens& tokens);
  void absorb_k_up(LayerId layer);
  void mlp(std::uint32_t block, std::span<const float> in, std::span<float> out);
  void rotate(LayerId layer, std::span<float> x, std::uint32_t heads, std::uint32_t head_dim, std::uint32_t first,
              const ForwardTokens& tokens);
  void scale_queries(const ForwardTokens& tokens);
  // In normed_, which the next call overwrites; x itself where the family has no such norm.
  std::span<const float> normed(std::span<const float> x, const Norm& norm);
  void norm_in_place(std::span<float> x, const Norm& norm);
  [[nodiscard]] NormRule norm_rule() const;
  [[nodiscard]] NormRule latent_norm_rule() const;
  void resize(std::size_t tokens);

  const Model& model_;
  Ops& ops_;
  ExpertLayer experts_;
  StateLayer states_;
  std::vector<float> x_;       // the residual stream, [tokens, hidden]
  std::vector<float> normed_;  // [tokens, hidden]
  std::vector<float> q_, k_, v_, attended_;
  std::vector<float> latent_q_, heads_;  // of a latent model: q before absorption, the heads' output before o
  std::vector<float> gate_, up_;  // scratch of the MLP, and of whatever projects through a narrower or wider row
  std::vector<float> block_;     // output of attention, or of the MLP after it, [tokens, hidden]
  std::vector<float> parallel_;  // output of an MLP beside attention, [tokens, hidden]
  std::vector<float> logits_;    // of one block of a prompt, [logit_block, vocab]
  std::vector<std::uint8_t> use_long_;  // of the pass: use_long_rotary()
  std::vector<std::uint32_t> position_rows_;
};

}  // namespace kvroof
