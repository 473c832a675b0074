#include "kernels/cpu/experts.hpp"

#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;

namespace {

std::vector<Route> routes_of(std::initializer_list<float> probabilities, std::size_t count, const RoutingRule& rule) {
  std::vector<float> logits;
  for (const float p : probabilities) logits.push_back(std::log(p) + 3);  // softmax gives p again
  std::vector<Route> chosen(count);
  Router().route(logits, rule, chosen);
  return chosen;
}

void check_routes(const std::vector<Route>& routes, const std::vector<std::pair<std::uint32_t, double>>& expected) {
  REQUIRE(routes.size() == expected.size());
  for (std::size_t i = 0; i < routes.size(); ++i) {
    CHECK(routes[i].expert == expected[i].first);
    CHECK(static_cast<double>(routes[i].weight) == Approx(expected[i].second).epsilon(1e-6));
  }
}

constexpr std::uint32_t kHidden = 24;
constexpr std::uint32_t kFfn = 40;
constexpr std::uint32_t kSharedFfn = 56;
constexpr std::uint32_t kExperts = 6;

Mlp random_mlp(std::size_t ffn, std::uint32_t stream) {
  Mlp mlp;
  mlp.gate.matrix = random_weight(DType::kF32, ffn, kHidden, stream);
  mlp.up.matrix = random_weight(DType::kF32, ffn, kHidden, stream + 1);
  mlp.down.matrix = random_weight(DType::kF32, kHidden, ffn, stream + 2);
  return mlp;
}

// One layer of six experts, two a token, renormalised, with a gated shared expert.
Model small_model() {
  Model model;
  ModelShape& shape = model.config.shape;
  shape.layers = 1;
  shape.hidden = kHidden;
  shape.experts = kExperts;
  shape.experts_per_token = 2;
  shape.expert_ffn = kFfn;
  shape.shared_expert_ffn = kSharedFfn;
  shape.shared_expert_gate = true;
  model.config.options.routing.renormalise = true;
  LayerWeights& layer = model.weights.layers.emplace_back();
  layer.experts.router.matrix = random_weight(DType::kF32, kExperts, kHidden, 100);
  for (std::uint32_t e = 0; e < kExperts; ++e) layer.experts.routed.push_back(random_mlp(kFfn, 200 + 10 * e));
  layer.experts.shared = random_mlp(kSharedFfn, 300);
  layer.experts.shared_gate = random_weight(DType::kF32, 1, kHidden, 400);
  return model;
}

std::vector<double> product(const Weight& w, std::span<const double> x) {
  std::vector<double> out(w.rows);
  for (std::size_t r = 0; r < w.rows; ++r) {
    for (std::size_t c = 0; c < w.cols; ++c) out[r] += at(w.view(), r, c) * x[c];
  }
  return out;
}

std::vector<double> mlp_of(const Mlp& mlp, std::span<const double> x) {
  std::vector<double> gate = product(mlp.gate.matrix, x);
  const std::vector<double> up = product(mlp.up.matrix, x);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return product(mlp.down.matrix, gate);
}

struct Expected {
  std::vector<double> out;
  std::vector<bool> used = std::vector<bool>(kExperts);  // any token chose it
  double least_margin = 1e9;                             // between the second and the third best router logit
};

Expected expected_of(const ExpertWeights& experts, std::span<const float> in) {
  Expected expected;
  for (std::size_t t = 0; t < in.size() / kHidden; ++t) {
    const std::vector<double> x(in.begin() + static_cast<std::ptrdiff_t>(t * kHidden),
                                in.begin() + static_cast<std::ptrdiff_t>((t + 1) * kHidden));
    const std::vector<double> logits = product(experts.router.matrix, x);
    std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5};
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    expected.least_margin = std::min(expected.least_margin, logits[order[1]] - logits[order[2]]);
    // Renormalised over the two: a softmax over the two.
    const double first = 1 / (1 + std::exp(logits[order[1]] - logits[order[0]]));
    std::vector<double> sum(kHidden);
    const auto add = [&](double factor, const std::vector<double>& y) {
      for (std::size_t i = 0; i < kHidden; ++i) sum[i] += factor * y[i];
    };
    add(first, mlp_of(experts.routed[order[0]], x));
    add(1 - first, mlp_of(experts.routed[order[1]], x));
    add(1 / (1 + std::exp(-product(experts.shared_gate, x)[0])), mlp_of(experts.shared, x));
    expected.used[order[0]] = expected.used[order[1]] = true;
    expected.out.insert(expected.out.end(), sum.begin(), sum.end());
  }
  return expected;
}

}  // namespace

TEST_CASE("the best experts are chosen, best first, with the softmax over all as weight") {
  check_routes(routes_of({0.1F, 0.4F, 0.2F, 0.3F}, 2, {}), {{1, 0.4}, {3, 0.3}});
  check_routes(routes_of({0.1F, 0.4F, 0.2F, 0.3F}, 4, {}), {{1, 0.4}, {3, 0.3}, {2, 0.2}, {0, 0.1}});
}

TEST_CASE("renormalised weights sum to one, the scale multiplies whatever they are") {
  RoutingRule rule;
  rule.renormalise = true;
  check_routes(routes_of({0.1F, 0.4F, 0.2F, 0.3F}, 2, rule), {{1, 0.4 / 0.7}, {3, 0.3 / 0.7}});
  rule.scale = 16;
  check_routes(routes_of({0.1F, 0.4F, 0.2F, 0.3F}, 2, rule), {{1, 16 * 0.4 / 0.7}, {3, 16 * 0.3 / 0.7}});
  rule.renormalise = false;
  check_routes(routes_of({0.1F, 0.4F, 0.2F, 0.3F}, 2, rule), {{1, 16 * 0.4}, {3, 16 * 0.3}});
}

TEST_CASE("of experts with equal scores the lower index is chosen") {
  check_routes(routes_of({0.2F, 0.2F, 0.2F, 0.2F, 0.2F}, 3, {}), {{0, 0.2}, {1, 0.2}, {2, 0.2}});
  check_routes(routes_of({0.1F, 0.25F, 0.4F, 0.25F}, 2, {}), {{2, 0.4}, {1, 0.25}});
}

TEST_CASE("group-limited routing chooses among the groups with the best single expert") {
  RoutingRule rule;
  rule.groups = 3;
  rule.top_groups = 2;
  // Groups {0, 1}, {2, 3}, {4, 5}: the second has the largest sum but the smallest best, and is closed.
  check_routes(routes_of({0.24F, 0.01F, 0.2F, 0.2F, 0.3F, 0.05F}, 3, rule), {{4, 0.3}, {0, 0.24}, {5, 0.05}});
  rule.top_groups = 1;
  check_routes(routes_of({0.24F, 0.01F, 0.2F, 0.2F, 0.3F, 0.05F}, 2, rule), {{4, 0.3}, {5, 0.05}});
  // Equal groups: the lower index again.
  check_routes(routes_of({0.2F, 0.1F, 0.2F, 0.1F, 0.2F, 0.2F}, 1, rule), {{0, 0.2}});
}

TEST_CASE("under sigmoids a bias takes part in the choice, and in no weight") {
  // Scores 0.5, 0.6, 0.7, 0.8; with the bias 0.95, 0.6, 0.7, 0.5.
  const auto logit = [](float score) { return std::log(score / (1 - score)); };
  const std::vector<float> logits = {logit(0.5F), logit(0.6F), logit(0.7F), logit(0.8F)};
  const std::vector<float> bias = {0.45F, 0, 0, -0.3F};
  RoutingRule rule;
  rule.scores = RouterScores::kSigmoid;
  std::vector<Route> chosen(2);
  Router().route(logits, rule, chosen);
  check_routes(chosen, {{3, 0.8}, {2, 0.7}});
  Router().route(logits, rule, chosen, bias);
  check_routes(chosen, {{0, 0.5}, {2, 0.7}});
  rule.renormalise = true;
  rule.scale = 2.5F;
  Router().route(logits, rule, chosen, bias);
  check_routes(chosen, {{0, 2.5 * 0.5 / 1.2}, {2, 2.5 * 0.7 / 1.2}});
}

TEST_CASE("groups are ranked by their two best experts where the rule says so, bias included") {
  const auto logit = [](float score) { return std::log(score / (1 - score)); };
  // Groups {0, 1, 2}, {3, 4, 5}: best 0.9 against 0.8, two best 1.2 against 1.5.
  const std::vector<float> logits = {logit(0.9F), logit(0.3F), logit(0.2F), logit(0.8F), logit(0.7F), logit(0.1F)};
  RoutingRule rule;
  rule.scores = RouterScores::kSigmoid;
  rule.groups = 2;
  std::vector<Route> chosen(2);
  Router().route(logits, rule, chosen);
  check_routes(chosen, {{0, 0.9}, {1, 0.3}});
  rule.group_best = 2;
  Router().route(logits, rule, chosen);
  check_routes(chosen, {{3, 0.8}, {4, 0.7}});
  Router().route(logits, rule, chosen, std::vector<float>{0, 0.5F, 0, 0, 0, 0});
  check_routes(chosen, {{0, 0.9}, {1, 0.3}});
}

TEST_CASE("SparseMixer weighs a chosen expert by what is left and near it") {
  // Within a tenth of its size: 3.8 is near 4, 3 is near none; of what is left below 3.8, nothing is near.
  RoutingRule rule;
  rule.scores = RouterScores::kSparseMixer;
  rule.margin = 0.1F;
  std::vector<Route> chosen(2);
  Router().route(std::vector<float>{3, 4, 3.8F, -4}, rule, chosen);
  check_routes(chosen, {{1, 1 / (1 + std::exp(-0.2))}, {2, 1}});
  rule.margin = 0.5F;  // 3 is near both
  Router().route(std::vector<float>{3, 4, 3.8F, -4}, rule, chosen);
  check_routes(chosen, {{1, 1 / (1 + std::exp(-0.2) + std::exp(-1))}, {2, 1 / (1 + std::exp(-0.8))}});
}

TEST_CASE("a router keeps nothing of the token before") {
  Router router;
  std::vector<Route> chosen(1);
  const std::vector<float> first = {5, 1, 1, 1}, second = {0, 1, 2};
  RoutingRule groups;
  groups.groups = 2;
  router.route(first, groups, chosen);
  CHECK(chosen[0].expert == 0);
  router.route(second, {}, chosen);
  CHECK(chosen[0].expert == 2);
}

TEST_CASE("experts that somebody else chose get the weights that the router would give them") {
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  std::vector<Route> chosen = {{3, 0}, {1, 0}};
  RoutingRule rule;
  rule.scale = 2;
  Router().weigh(logits, rule, chosen);
  check_routes(chosen, {{3, 0.2}, {1, 0.6}});
  rule.renormalise = true;
  Router().weigh(logits, rule, chosen);
  check_routes(chosen, {{3, 0.5}, {1, 1.5}});
}

TEST_CASE("a reviewer is shown every choice, and the experts that it puts in their place are taken") {
  struct Reviewer final : RouteReviewer {
    void review(std::uint32_t layer, std::size_t row, std::span<const float> logits,
                std::span<Route> chosen) override {
      CHECK(layer == 0);
      CHECK(row == rows++);
      std::vector<Route> own(chosen.size());
      Router().route(logits, {}, own);
      for (std::size_t i = 0; i < own.size(); ++i) CHECK(own[i].expert == chosen[i].expert);
      if (row != 1) return;
      chosen[0] = {4, 0.25F};
      chosen[1] = {2, 0.5F};
    }
    std::size_t rows = 0;
  };
  Model model = small_model();
  model.config.shape.shared_expert_ffn = 0;
  const std::vector<float> in = numbers(3 * kHidden, 500);
  on_every_back_end([&](Ops& ops) {
    ExpertLayer layer(model, ops);
    std::vector<float> own = poisoned(in.size()), out = poisoned(in.size()), each(kHidden);
    layer.run(0, in, own);
    Reviewer reviewer;
    layer.set_reviewer(&reviewer);
    layer.run(0, in, out);
    CHECK(reviewer.rows == 3);
    std::vector<float> expected = own;
    std::fill_n(expected.begin() + kHidden, kHidden, 0.0F);
    std::vector<float> gate, up;
    for (const Route& route : {Route{4, 0.25F}, Route{2, 0.5F}}) {
      run_mlp(ops, model.weights.layers[0].experts.routed[route.expert], model.config.options.activation,
              std::span(in).subspan(kHidden, kHidden), kFfn, gate, up, each);
      for (std::size_t i = 0; i < kHidden; ++i) expected[kHidden + i] += route.weight * each[i];
    }
    CHECK(deviation(out, std::vector<double>(expected.begin(), expected.end())) <= 1e-5);
  });
}

TEST_CASE("more experts a token than compete break an invariant") {
  CHECK_THROWS_AS(routes_of({0.5F, 0.5F}, 3, {}), std::logic_error);
}

TEST_CASE("an expert layer gives the weighted sum of the chosen experts and the gated shared expert") {
  const Model model = small_model();
  const ExpertWeights& experts = model.weights.layers[0].experts;
  for (const std::size_t tokens : {1, 2, 5, 90}) {  // with 90 some experts pass through the products for many tokens
    const std::vector<float> in = numbers(tokens * kHidden, 500);
    const Expected expected = expected_of(experts, in);
    REQUIRE(expected.least_margin > 1e-5);  // no decision hangs on rounding
    on_every_back_end([&](Ops& ops) {
      INFO("tokens " << tokens);
      ExpertLayer layer(model, ops);
      std::vector<float> out = poisoned(in.size());
      layer.run(0, in, out);
      CHECK(deviation(out, expected.out) <= 1e-5);
      std::vector<float> again = poisoned(in.size());
      layer.run(0, in, again);
      CHECK(same_bits(out, again));
    });
  }
}

TEST_CASE("the weights of an expert are counted once a call however many tokens chose it, and not at all unchosen") {
  const Model model = small_model();
  const ExpertWeights& experts = model.weights.layers[0].experts;
  const std::uint64_t one_expert = 3 * kFfn * kHidden * 4;
  const std::uint64_t always = (kExperts * kHidden + 3 * kSharedFfn * kHidden + kHidden) * 4;
  for (const std::size_t tokens : {1, 2, 3, 90}) {
    const std::vector<float> in = numbers(tokens * kHidden, 500);
    const std::vector<bool> used = expected_of(experts, in).used;
    const auto chosen = static_cast<std::uint64_t>(std::count(used.begin(), used.end(), true));
    if (tokens <= 2) REQUIRE(chosen < kExperts);
    on_every_back_end([&](Ops& ops) {
      ExpertLayer layer(model, ops);
      std::vector<float> out(in.size());
      layer.run(0, in, out);
      CHECK(ops.counters()[Cause::kWeights] == always + chosen * one_expert);
    });
  }
}

TEST_CASE("a NaN of one token reaches its own output and no other token's") {
  const Model model = small_model();
  std::vector<float> in = numbers(3 * kHidden, 501);
  in[kHidden + 3] = std::numeric_limits<float>::quiet_NaN();
  on_every_back_end([&](Ops& ops) {
    ExpertLayer layer(model, ops);
    std::vector<float> out(in.size());
    layer.run(0, in, out);
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(std::isnan(out[i]) == (i / kHidden == 1));
  });
}
