// Tensor names of gpt-oss: LLaMA's, with sinks beside the projections. The experts of a layer share their tensors: one
// of gates and ups, which take turns, and one of downs; [in, out] as they are multiplied, or [out, in] in MXFP4.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kScaled = 32, kPackedBytes = 16;  // elements that share a scale in MXFP4, and what they take

void bind_attention_with_sinks(WeightBinder& binder, const ModelShape& shape, const std::string& layer,
                               LayerWeights& w) {
  bind_projections(binder, shape, layer + ".self_attn.", w);
  binder.exact_vector(layer + ".self_attn.sinks", w.sinks, shape.heads);
}

// [experts, out, in] and its biases: of each expert, output i is one of parts[i mod parts].
void bind_together(WeightBinder& binder, const std::string& name, bool packed, std::size_t out, std::size_t in,
                   std::initializer_list<Linear Mlp::*> parts, std::vector<Mlp>& experts) {
  const std::size_t count = experts.size(), step = parts.size(), rows = out / step;
  TensorBinding matrix{name, {count, in, out}, {}};
  TensorBinding bias{name + "_bias", {count, out}, {}};
  matrix.width = packed ? in : out;
  bias.width = 1;
  if (packed) {
    matrix.name = name + "_blocks";
    matrix.scales = name + "_scales";
    matrix.scale_cols = kScaled;
    matrix.shape = {count, out, in / kScaled, kPackedBytes};
  }
  for (std::size_t e = 0; e < count; ++e) {
    std::size_t first = 0;
    for (Linear Mlp::* const part : parts) {
      Linear& linear = experts[e].*part;
      RowBlock block{.weight = &linear.matrix, .rows = rows, .cols = in, .step = step};
      block.from = packed ? e * out + first : e * in;
      block.count = packed ? rows : in;
      block.transposed = !packed;
      block.col = packed ? 0 : first;
      matrix.blocks.push_back(block);
      bias.blocks.push_back({.weight = &linear.bias, .rows = 1, .cols = rows, .from = e * out + first, .count = rows,
                             .step = step});
      ++first;
    }
  }
  binder.add(std::move(matrix));
  binder.add(std::move(bias));
}

void bind_experts(WeightBinder& binder, const ModelConfig& config, const std::string& layer, ExpertWeights& w) {
  const ModelShape& shape = config.shape;
  const std::string mlp = layer + ".mlp";
  const bool packed = config.options.mxfp4_experts;
  binder.linear(mlp + ".router", w.router, shape.experts, shape.hidden, shape.router_logit_bias);
  bind_together(binder, mlp + ".experts.gate_up_proj", packed, std::size_t{2} * shape.expert_ffn, shape.hidden,
                {&Mlp::gate, &Mlp::up}, w.routed);
  bind_together(binder, mlp + ".experts.down_proj", packed, shape.hidden, shape.expert_ffn, {&Mlp::down}, w.routed);
}

}  // namespace

std::vector<TensorBinding> bind_gpt_oss(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.attention = bind_attention_with_sinks, .experts = bind_experts});
}

}  // namespace kvroof
