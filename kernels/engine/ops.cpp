#include "kernels/engine/ops.hpp"

namespace kvroof {

std::vector<AttentionRule> attention_rules(const Model& model) {
  std::vector<AttentionRule> rules;
  const ModelOptions& options = model.config.options;
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    const LayerRule& layer = options.layers[i];
    rules.push_back({{layer.scale, layer.softcap},
                     options.alibi_slopes,
                     model.layer(LayerId(static_cast<std::uint32_t>(i))).attention_sinks(),
                     options.alibi_rounded_scale});
  }
  return rules;
}

}  // namespace kvroof
