#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

class DecoderBinder {
 public:
  DecoderBinder(const ModelConfig& config, const DecoderNames& names)
      : config_(config), shape_(config.shape), names_(names) {}

  void layer(std::uint32_t index, LayerWeights& w) {
    std::string layer = next_layer();
    norm(layer, names_.attention_norm, w.attention_norm);
    if (config_.attends(index)) {
      names_.attention(binder_, shape_, layer, w);
    } else {
      names_.state(binder_, shape_, layer, w.state);
    }
    norm(layer, names_.attention_out_norm, w.attention_out_norm);
    if (!config_.has_mlp(index)) return;
    if (names_.apart) layer = next_layer();
    norm(layer, names_.mlp_norm, w.mlp_norm);
    const std::string mlp_name = fmt::format("{}.{}", layer, names_.mlp);
    if (shape_.is_expert_layer(index)) {
      w.experts.routed.resize(shape_.experts);
      names_.experts != nullptr ? names_.experts(binder_, config_, layer, w.experts) : experts(mlp_name, w.experts);
    } else {
      mlp(mlp_name, w.mlp, shape_.ffn);
    }
    norm(layer, names_.mlp_out_norm, w.mlp_out_norm);
  }

  WeightBinder& binder() { return binder_; }

 private:
  std::string next_layer() { return fmt::format("{}.{}", names_.layers, layers_++); }

  void norm(const std::string& layer, std::string_view name, Norm& norm) {
    if (!name.empty()) binder_.norm(fmt::format("{}.{}", layer, name), norm, shape_.hidden, shape_.norm_bias);
  }

  void mlp(const std::string& name, Mlp& mlp, std::size_t ffn) {
    const auto part = [&](std::string_view part_name) { return fmt::format("{}.{}", name, part_name); };
    const std::size_t hidden = shape_.hidden;
    const bool bias = shape_.mlp_bias;
    if (!names_.fused_gate_up.empty()) {
      binder_.fused(part(names_.fused_gate_up), {{&mlp.gate, ffn}, {&mlp.up, ffn}}, 1, hidden, bias);
    } else {
      if (shape_.mlp == MlpKind::kGated) binder_.linear(part(names_.parts.gate), mlp.gate, ffn, hidden, bias);
      binder_.linear(part(names_.parts.up), mlp.up, ffn, hidden, bias);
    }
    binder_.linear(part(names_.parts.down), mlp.down, hidden, ffn, bias);
  }

  void experts(const std::string& name, ExpertWeights& experts) {
    binder_.linear(fmt::format("{}.{}", name, names_.router), experts.router, shape_.experts, shape_.hidden, false);
    if (!names_.router_bias.empty()) {
      const std::string bias = fmt::format("{}.{}", name, names_.router_bias);
      names_.router_bias_is_row ? binder_.exact_row(bias, experts.router_bias, shape_.experts)
                                : binder_.exact_vector(bias, experts.router_bias, shape_.experts);
    }
    for (std::uint32_t e = 0; e < shape_.experts; ++e) {
      mlp(fmt::format("{}.experts.{}", name, e), experts.routed[e], shape_.expert_ffn);
    }
    if (shape_.shared_expert_ffn == 0) return;
    mlp(fmt::format("{}.{}", name, names_.shared_expert), experts.shared, shape_.shared_expert_ffn);
    if (shape_.shared_expert_gate) {
      binder_.matrix(fmt::format("{}.{}_gate.weight", name, names_.shared_expert), experts.shared_gate, 1,
                     shape_.hidden);
    }
  }

  const ModelConfig& config_;
  const ModelShape& shape_;
  const DecoderNames& names_;
  WeightBinder binder_;
  std::uint32_t layers_ = 0;  // as the checkpoint counts them, of those that are bound
};

void bind_qk_norms(WeightBinder& binder, const ModelShape& shape, const std::string& attention, LayerWeights& w) {
  const auto bind = [&](const char* name, Norm& norm, std::size_t heads) {
    const std::string tensor = attention + name;
    switch (shape.qk_norm) {
      case QkNorm::kHead:
        return binder.norm(tensor, norm, shape.head_dim, false);
      case QkNorm::kEachHead:
        return binder.matrix(tensor + ".weight", norm.scale, heads, shape.head_dim);
      case QkNorm::kWhole:
        return binder.norm(tensor, norm, heads * shape.head_dim, false);
      default:
        return;
    }
  };
  bind("q_norm", w.q_norm, shape.heads);
  bind("k_norm", w.k_norm, shape.kv_heads);
}

}  // namespace

void bind_projections(WeightBinder& binder, const ModelShape& shape, const std::string& attention, LayerWeights& w,
                      std::string_view output) {
  const std::size_t q_width = std::size_t{shape.heads} * shape.head_dim;
  const std::size_t k_width = std::size_t{shape.kv_heads} * shape.head_dim;
  binder.linear(attention + "q_proj", w.q, q_width, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "k_proj", w.k, k_width, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "v_proj", w.v, k_width, shape.hidden, shape.qkv_bias);
  binder.linear(fmt::format("{}{}", attention, output), w.o, shape.hidden, q_width, shape.out_bias);
}

void bind_attention(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  const std::string attention = layer + ".self_attn.";
  bind_projections(binder, shape, attention, w);
  bind_qk_norms(binder, shape, attention, w);
}

std::vector<TensorBinding> bind_decoder(const ModelConfig& config, ModelWeights& weights, const DecoderNames& names) {
  const ModelShape& shape = config.shape;
  DecoderBinder decoder(config, names);
  WeightBinder& binder = decoder.binder();
  binder.matrix(fmt::format("{}.weight", names.embedding), weights.embedding, shape.vocab, shape.hidden);
  for (std::uint32_t i = 0; i < weights.layers.size(); ++i) decoder.layer(i, weights.layers[i]);
  binder.norm(std::string(names.final_norm), weights.final_norm, shape.hidden, shape.norm_bias);
  if (shape.head_bias) binder.vector("lm_head.bias", weights.head_bias, shape.vocab);
  return binder.take();
}

}  // namespace kvroof
