// The mixture-of-experts MLP: routing, and the pass of each chosen expert over its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/engine/model.hpp"
#include "kernels/engine/ops.hpp"

namespace kvroof {

// An expert chosen for a token and the weight of its output.
struct Route {
  std::uint32_t expert = 0;
  float weight = 0;
};

// The experts of one token, best first, by its router logits; of equal ones the lower index. Softmax over all experts;
// group-limited where the rule says so.
std::vector<Route> route(std::span<const float> router_logits, std::uint32_t experts_per_token,
                         const RoutingRule& rule);

class ExpertLayer {
 public:
  // Both must outlive this object.
  ExpertLayer(const Model& model, Ops& ops) : model_(model), ops_(ops) {}

  // out [tokens, hidden] = Σ weight · expert(in) over the chosen experts of each token, and the shared experts. Experts
  // are passed in ascending order, each once for all its tokens: its weights are read once a call, if any token chose
  // it.
  void run(std::uint32_t layer, std::span<const float> in, std::span<float> out);

 private:
  void pass(const Mlp& mlp, std::size_t ffn, std::span<const float> in, std::span<float> out);
  void add_shared(const ExpertWeights& experts, std::span<const float> in, std::span<float> out);

  const Model& model_;
  Ops& ops_;
  std::vector<float> router_, gathered_, gate_, up_, result_, factors_;
  std::vector<std::uint32_t> rows_;
};

// out = down(f(gate(in)) · up(in)), or down(f(up(in))) of a plain MLP; gate and up are scratch.
void run_mlp(Ops& ops, const Mlp& mlp, Activation activation, std::span<const float> in, std::size_t ffn,
             std::vector<float>& gate, std::vector<float>& up, std::span<float> out);

}  // namespace kvroof
