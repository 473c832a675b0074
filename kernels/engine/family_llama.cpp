// Tensor names of LLaMA checkpoints.
#include "kernels/engine/weight_families.hpp"

namespace kvroof {
namespace {

class Binder {
 public:
  explicit Binder(std::vector<TensorBinding>& out) : out_(out) {}

  void matrix(const std::string& name, Weight& weight, std::size_t rows, std::size_t cols) {
    out_.push_back({name + ".weight", &weight, rows, cols, false});
  }
  void linear(const std::string& name, Weight& weight, Weight& bias, bool has_bias, std::size_t rows,
              std::size_t cols) {
    matrix(name, weight, rows, cols);
    if (has_bias) out_.push_back({name + ".bias", &bias, 1, rows, true});
  }
  void norm(const std::string& name, Weight& weight, std::size_t cols) {
    out_.push_back({name + ".weight", &weight, 1, cols, true});
  }

 private:
  std::vector<TensorBinding>& out_;
};

void bind_layer(Binder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  const std::size_t q_width = std::size_t{shape.heads} * shape.head_dim;
  const std::size_t k_width = std::size_t{shape.kv_heads} * shape.head_dim;
  const std::string attention = layer + ".self_attn.";
  const std::string mlp = layer + ".mlp.";
  binder.norm(layer + ".input_layernorm", w.attention_norm, shape.hidden);
  binder.linear(attention + "q_proj", w.q, w.q_bias, shape.qkv_bias, q_width, shape.hidden);
  binder.linear(attention + "k_proj", w.k, w.k_bias, shape.qkv_bias, k_width, shape.hidden);
  binder.linear(attention + "v_proj", w.v, w.v_bias, shape.qkv_bias, k_width, shape.hidden);
  binder.linear(attention + "o_proj", w.o, w.o_bias, shape.out_bias, shape.hidden, q_width);
  binder.norm(layer + ".post_attention_layernorm", w.mlp_norm, shape.hidden);
  binder.linear(mlp + "gate_proj", w.gate, w.gate_bias, shape.mlp_bias, shape.ffn, shape.hidden);
  binder.linear(mlp + "up_proj", w.up, w.up_bias, shape.mlp_bias, shape.ffn, shape.hidden);
  binder.linear(mlp + "down_proj", w.down, w.down_bias, shape.mlp_bias, shape.hidden, shape.ffn);
}

}  // namespace

std::vector<TensorBinding> bind_llama(const ModelShape& shape, ModelWeights& weights) {
  std::vector<TensorBinding> bindings;
  Binder binder(bindings);
  binder.matrix("model.embed_tokens", weights.embedding, shape.vocab, shape.hidden);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    bind_layer(binder, shape, fmt::format("model.layers.{}", i), weights.layers[i]);
  }
  binder.norm("model.norm", weights.final_norm, shape.hidden);
  if (!shape.tied_head) binder.matrix("lm_head", weights.head, shape.vocab, shape.hidden);
  return bindings;
}

bool skipped_llama(const ModelShape& shape, std::string_view tensor) {
  return tensor.ends_with("rotary_emb.inv_freq") || (shape.tied_head && tensor == "lm_head.weight");
}

}  // namespace kvroof
