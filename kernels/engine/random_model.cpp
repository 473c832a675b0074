#include "kernels/engine/random_model.hpp"

#include <cmath>
#include <set>

#include "kernels/engine/elements.hpp"

namespace kvroof {
namespace {

// The weights that norms multiply by.
std::set<const Weight*> norm_scales(const ModelWeights& w) {
  std::set<const Weight*> scales = {&w.embedding_norm.scale, &w.final_norm.scale};
  for (const LayerWeights& l : w.layers) {
    for (const Norm* norm : {&l.attention_norm, &l.q_norm, &l.k_norm, &l.attention_out_norm, &l.mlp_norm,
                             &l.mlp_out_norm, &l.latent.q_norm, &l.latent.kv_norm, &l.state.norm}) {
      scales.insert(&norm->scale);
    }
  }
  return scales;
}

// A sum of `cols` products keeps the variance of its terms when the factors' variance is 1 / cols.
RandomFill fill_for(const Weight& weight, bool is_scale) {
  if (is_scale) return {0, 0, 1.0F, 0.25F};
  if (weight.rows == 1) return {0, 0, 0.0F, 0.05F};
  return {0, 0, 0.0F, std::sqrt(3.0F / static_cast<float>(weight.cols))};
}

}  // namespace

Model random_model(ModelConfig config, DType type, std::uint64_t seed) {
  if (!runs_family(config.shape.family)) {
    throw usage_error(fmt::format("{}: the engine runs no model of family {}", config.shape.name, config.shape.family))
        .note("`kvroof plan` predicts models that cannot be run");
  }
  if (const std::string part = unnamed_part(config.shape); !part.empty()) {
    throw usage_error(fmt::format("{}: the engine runs no model of family {} with {}", config.shape.name,
                                  config.shape.family, part))
        .note("`kvroof plan` predicts models that cannot be run");
  }
  Model model;
  model.name = config.shape.name;
  model.type = type;
  model.config = std::move(config);
  model.config.shape.weight_type = type;
  const std::vector<TensorBinding> tensors = bind_tensors(model.config, model.weights);
  const std::set<const Weight*> scales = norm_scales(model.weights);
  std::uint32_t stream = 0;
  for (const TensorBinding& tensor : tensors) {
    for (const RowBlock& block : tensor.blocks) {
      if (!block.weight->empty()) continue;  // several blocks make one weight
      block.weight->type = tensor.exact ? DType::kF32 : type;
      block.weight->rows = block.rows;
      block.weight->cols = block.cols;
      block.weight->random = fill_for(*block.weight, scales.contains(block.weight));
      block.weight->random.seed = seed;
      block.weight->random.stream = stream++;
    }
  }
  make_sinks(model);
  return model;
}

}  // namespace kvroof
