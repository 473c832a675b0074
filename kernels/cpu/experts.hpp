// The mixture-of-experts MLP: routing, and the pass of each chosen expert over its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/engine/model.hpp"
#include "kernels/engine/ops.hpp"

namespace kvroof {

// An expert chosen for a token and the weight of its output.
struct Route {
  std::uint32_t expert = 0;
  float weight = 0;
};

// Sees every choice of experts and may put another in its place. Where two experts score nearly alike, rounding decides
// between them; a check of a back end that rounds otherwise lets the reference follow its choice.
class RouteReviewer {
 public:
  virtual ~RouteReviewer() = default;
  // The router's logits of token `row` of a pass, and the experts that it takes, best first. Layers come in order, and
  // the tokens of a layer.
  virtual void review(std::uint32_t layer, std::size_t row, std::span<const float> logits, std::span<Route> chosen) = 0;
};

// The experts of a token with the best scores (softmax over all, sigmoids, or logits), of equal ones the lower index.
// Group-limited where the rule says so (DeepSeek-V2, arXiv:2405.04434, section 2.2.2); a bias may take part in the
// choice (DeepSeek-V3, arXiv:2412.19437, section 2.1.2). SparseMixer (arXiv:2409.12136) weighs each chosen expert by
// what else is left: others that are near it take a part, and those that are not near, none.
class Router {
 public:
  // Fills `chosen`, best first, from the router's logits of one token. At least as many experts must compete. `bias`
  // [experts], or none.
  void route(std::span<const float> logits, const RoutingRule& rule, std::span<Route> chosen,
             std::span<const float> bias = {});
  // The weights alone, of experts that somebody else chose.
  void weigh(std::span<const float> logits, const RoutingRule& rule, std::span<Route> chosen);

 private:
  void score(std::span<const float> logits, const RoutingRule& rule);
  void weigh_chosen(const RoutingRule& rule, std::span<Route> chosen);
  void mix_chosen(const RoutingRule& rule, std::span<Route> chosen);
  void close_groups(const RoutingRule& rule);

  std::vector<float> scores_, ranks_, group_ranks_;  // ranks_: scores and bias, by which experts are chosen
  std::vector<std::uint8_t> open_, open_groups_;  // != 0: may still be chosen
};

// [experts], or none.
inline std::span<const float> router_bias_of(const ExpertWeights& experts) {
  return {reinterpret_cast<const float*>(experts.router_bias.data.data()), experts.router_bias.cols};
}

class ExpertLayer {
 public:
  // Both must outlive this object.
  ExpertLayer(const Model& model, Ops& ops) : model_(model), ops_(ops) {}

  // out [tokens, hidden] = Σ weight · expert(in) over the chosen experts of each token, and the shared experts. Experts
  // are passed in ascending order, each once for all its tokens: its weights are read once a call, if any token chose
  // it.
  void run(std::uint32_t layer, std::span<const float> in, std::span<float> out);
  // Routed experts that passed tokens, summed over layers, since the last call.
  std::uint64_t take_passed() { return std::exchange(passed_, 0); }
  void set_reviewer(RouteReviewer* reviewer) { reviewer_ = reviewer; }  // may be null; not owned

 private:
  void choose(std::uint32_t layer, std::span<const float> in);
  void group_by_expert();
  void pass(const Mlp& mlp, std::size_t ffn, std::span<const float> in);
  void add_shared(const ExpertWeights& experts, std::span<const float> in, std::span<float> out);

  const Model& model_;
  Ops& ops_;
  Router router_;
  RouteReviewer* reviewer_ = nullptr;
  std::vector<float> router_logits_;  // [tokens, experts]
  std::vector<Route> routes_;         // [tokens, experts_per_token]
  // The routes sorted by expert, then token: those of expert e are [starts_[e], starts_[e + 1]).
  std::vector<std::size_t> starts_;
  std::vector<std::uint32_t> rows_;   // token
  std::vector<float> factors_;        // weight
  std::vector<float> gathered_, gate_, up_, result_;
  std::uint64_t passed_ = 0;
};

// out = down(f(gate(in)) · up(in)), or down(f(up(in))) of a plain MLP; gate and up are scratch.
void run_mlp(Ops& ops, const Mlp& mlp, Activation activation, std::span<const float> in, std::size_t ffn,
             std::vector<float>& gate, std::vector<float>& up, std::span<float> out);

}  // namespace kvroof
