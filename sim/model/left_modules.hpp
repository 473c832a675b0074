// LeftModules: which modules of a quantised checkpoint its config.json leaves at 16 bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/model/model_shape.hpp"

namespace kvroof {

class LeftModules {
 public:
  // Names as in model.layers.7.self_attn.q_proj, model.layers.7 or self_attn, and patterns (re:.*self_attn.*,
  // model.layers.*.mlp*, (q|k|v)_proj) where they are for all layers. What is no matrix of a layer's attention or MLP
  // is not looked at: heads, norms, routers, routed experts, layers that hold a state, towers of pictures.
  // Of `taken`, modules that are packed (targets of llm-compressor's groups), all else is left as well, unless one of
  // them is a class of modules, as Linear, or is not understood.
  explicit LeftModules(const std::vector<std::string>& names, const std::vector<std::string>& taken = {});

  // Whether attention is left in each of so many layers.
  [[nodiscard]] bool all_attention(std::uint32_t layers) const;
  // Of the parameters of all layers of a dense model, the share that is left.
  [[nodiscard]] double share_of(const ModelShape& shape) const;

 private:
  // Of one layer, or of all: a bit for each projection.
  struct Marks {
    std::uint8_t attention = 0;  // q, k, v, o; of latent attention the ways to q, to the latent row, back, and o
    std::uint8_t mlp = 0;        // gate, up, down
  };
  // Of modules that are named: what is named of all layers, and of each.
  struct Named {
    Marks everywhere;
    std::map<std::uint32_t, Marks> layers;
    bool experts = false;  // or nothing but routed experts

    // Whether it was understood.
    bool add(std::string_view name);
    [[nodiscard]] Marks of_layer(std::uint32_t layer) const;
    [[nodiscard]] bool any() const { return experts || everywhere.attention || everywhere.mlp || !layers.empty(); }
  };
  [[nodiscard]] Marks of_layer(std::uint32_t layer) const;

  Named left_, taken_;
};

}  // namespace kvroof
