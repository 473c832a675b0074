#include "sim/model/config_of_shape.hpp"

#include <cmath>

#include "sim/core/alibi.hpp"

namespace kvroof {
namespace {

RotaryRule rotary_of(const ModelShape& shape) {
  const auto style =
      shape.position == PositionScheme::kRotaryAdjacent ? RotaryStyle::kAdjacentPairs : RotaryStyle::kHalfSplit;
  return plain_rotary(style, shape.latent() ? shape.latent_rope_dim : shape.head_dim, 10000.0);
}

}  // namespace

void leave_layers_unturned(ModelConfig& config) {
  const std::vector<std::uint32_t>& unturned = config.shape.unturned_layers;
  if (unturned.empty() || config.options.rotary.empty()) return;
  RotaryRule none;
  none.style = config.options.rotary.front().style;
  config.options.rotary.push_back(none);
  const auto last = static_cast<std::uint32_t>(config.options.rotary.size() - 1);
  for (const std::uint32_t layer : unturned) config.options.layers[layer].rotary = last;
}

std::string not_built(const ModelShape& shape) {
  if (shape.compressed) return "attention to rows that each stand for several tokens";
  if (shape.residual_streams > 1) return "several residual streams";
  if (shape.hashed_layers > 0) return "experts that a table of tokens names";
  if (shape.index) return "attention to the tokens that an index chooses";
  if (!shape.other.layers.empty()) return "layers of attention with different heads";
  if (shape.sharing_layers > 0) return "layers that attend to the cache of an earlier layer";
  if (shape.head_gate) return "gates of whole heads";
  if (shape.layer_embedding > 0 || shape.layer_extras > 0 || shape.model_extras > 0) {
    return "matrices beside attention and MLP";
  }
  if (shape.state.beside_attention) return "layers that attend and hold a state";
  switch (shape.state.kind) {
    case StateKind::kNone:
    case StateKind::kMamba2:
    case StateKind::kGatedDelta:
    case StateKind::kShortConvolution: break;
    default: return "layers that hold a state of this kind in place of a cache";
  }
  if (shape.state.layers > 0 && shape.state.convolution == 0) return "layers that hold a state without a convolution";
  if (shape.mlps() > shape.mixers()) return "more MLPs than layers before them";
  if (shape.mlps() < shape.mixers() && (shape.norms_per_layer != 2 || (shape.experts > 0 && shape.dense_layers > 0))) {
    return "layers without an MLP beside dense layers of experts or other than two norms";
  }
  return shape.expert_width > 0 ? "experts that are narrower than the model" : "";
}

ModelConfig config_of_shape(ModelShape shape) {
  check(not_built(shape).empty(), "the engine runs models of this shape");
  ModelConfig config;
  ModelOptions& options = config.options;
  const float scale = shape.latent()
                          ? 1.0F / std::sqrt(static_cast<float>(shape.latent_nope_dim + shape.latent_rope_dim))
                          : default_attention_scale(shape.head_dim);
  options.layers.assign(shape.layers, {scale});
  options.activation = shape.mlp == MlpKind::kGated ? Activation::kSilu : Activation::kGeluTanh;
  if (shape.router_bias) options.routing = {.scores = RouterScores::kSigmoid, .renormalise = true};
  if (shape.family == "gpt_oss") {
    options.activation = Activation::kClampedSwiglu;
    options.routing.renormalise = true;
  }
  if (shape.norms_per_layer == 1) options.residual = ResidualOrder::kParallel;
  switch (shape.position) {
    case PositionScheme::kRotaryHalfSplit:
    case PositionScheme::kRotaryAdjacent: options.rotary = {rotary_of(shape)}; break;
    case PositionScheme::kAlibi: options.alibi_slopes = alibi_slopes(shape.heads); break;
    case PositionScheme::kLearned: options.position_offset = shape.position_rows - shape.max_positions; break;
    default: break;
  }
  for (std::uint32_t i = 1; i <= shape.layers && shape.state.layers > 0; ++i) {  // the last of each group
    options.attending.push_back(static_cast<std::uint32_t>(std::uint64_t{i} * shape.mixers() / shape.layers) - 1);
  }
  for (std::uint32_t i = 0, alone = shape.mixers() - shape.mlps(); i < alone; ++i) {
    options.alone.push_back(static_cast<std::uint32_t>(std::uint64_t{i} * shape.mixers() / alone));
  }
  config.shape = std::move(shape);
  leave_layers_unturned(config);
  return config;
}

}  // namespace kvroof
