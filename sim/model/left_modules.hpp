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
  explicit LeftModules(const std::vector<std::string>& names);

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
  void add(std::string_view name);
  [[nodiscard]] Marks of_layer(std::uint32_t layer) const;

  Marks everywhere_;
  std::map<std::uint32_t, Marks> layers_;
};

}  // namespace kvroof
