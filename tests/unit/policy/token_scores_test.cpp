// The policy `scores`: sets by what a user's file says of each token.
#include "sim/policy/head_values.hpp"
#include "sim/policy/token_scores.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

using Sets = std::vector<Positions>;

PolicySpec with_scores(std::string_view policy, TokenScores scores) {
  PolicySpec spec = spec_of(policy);
  spec.token_scores = std::make_shared<TokenScores>(std::move(scores));
  return spec;
}

// What the heads of each layer of a model of 2 layers and 2 heads keep of a prompt, one after another.
Sets kept_of(const PolicySpec& spec, Shape shape) {
  shape.query_heads = shape.kv_heads = shape.layers = 2;
  Sets sets;
  for (shape.layer = 0; shape.layer < 2; ++shape.layer) {
    Driver driver(spec, shape, [](auto, auto, auto) { return 0.0F; });
    driver.prompt();
    for (std::uint32_t h = 0; h < 2; ++h) sets.push_back(driver.kept(h));
  }
  return sets;
}

// Layer 0 above layer 1, in each of them head 0 above head 1 but for one token.
const TokenScores kScores = {2, 2, {{0, {9, 8, 7, 6, 1, 1, 5, 1, 3, 4, 3, 4, 2, 0, 0, 2}}}};

}  // namespace

TEST_CASE("the best tokens of a file stay: k of each head, or as many of a layer's or a model's heads together") {
  const Shape shape = {.prompt = 4};
  CHECK(kept_of(with_scores("scores:budget=2:file=f", kScores), shape) == Sets{{0, 1}, {2, 3}, {1, 3}, {0, 3}});
  // A head that none of the best is in keeps one token, though that is more than the budget.
  CHECK(kept_of(with_scores("scores:budget=2:file=f:share=layer", kScores), shape) ==
        Sets{{0, 1, 2, 3}, {2}, {0, 1, 2, 3}, {3}});
  CHECK(kept_of(with_scores("scores:budget=2:file=f:share=model", kScores), shape) ==
        Sets{{0, 1, 2, 3}, {2}, {1, 2, 3}, {3}});
  // Of a layer's 8 tokens int(8 · 0.3) = 2 go, where k a head is int(4 · 0.7) = 2.
  CHECK(kept_of(with_scores("scores:compression=0.3:file=f:share=layer", kScores), shape) ==
        Sets{{0, 1, 2, 3}, {2, 3}, {0, 1, 2, 3}, {0, 3}});
}

TEST_CASE("a budget of the whole prompt keeps it, whatever the scores say") {
  for (const char* share : {"head", "layer", "model"}) {
    const auto spec = with_scores(fmt::format("scores:budget=4:file=f:share={}", share), kScores);
    CHECK(kept_of(spec, {.prompt = 4}) == Sets(4, Positions{0, 1, 2, 3}));
  }
}

TEST_CASE("in a layer with a window the tokens that it still shows are ranked") {
  // Of head 0 the best tokens have left the window of 2, head 1 has what is left.
  const TokenScores scores = {1, 2, {{0, {9, 9, 1, 1, 0, 0, 3, 2}}}};
  Shape shape = {.query_heads = 2, .kv_heads = 2, .prompt = 4, .window = 2, .layers = 1};
  Driver driver(with_scores("scores:budget=1:file=f:share=layer", scores), shape,
                [](auto, auto, auto) { return 0.0F; });
  driver.prompt();
  CHECK(driver.kept(0) == Positions{3});
  CHECK(driver.kept(1) == Positions{2, 3});
}

TEST_CASE("a file has scores for each sequence, or the same for all") {
  TokenScores scores = {2, 2, {{0, std::vector<float>(4, 0.0F)}, {1, {1, 2, 3, 3, 2, 1, 1, 2, 3, 3, 2, 1}}}};
  const auto spec = with_scores("scores:budget=1:file=f", scores);
  PolicyContext context = {.layers = 2, .storage_heads = 2, .prompt = 3};
  CHECK_THROWS_WITH(token_scores(spec, context),
                    ContainsSubstring("file=f has scores of 1 tokens, and the prompt of sequence 0 has 3"));
  context.sequence = 1;
  CHECK(token_scores(spec, context).size() == 12);
  context.sequence = 2;
  CHECK_THROWS_WITH(token_scores(spec, context),
                    ContainsSubstring("has scores of 2 sequences, and none of sequence 2"));
  context.storage_heads = 4;
  CHECK_THROWS_WITH(token_scores(spec, context), ContainsSubstring("has 2 layers of 2 heads, the model 2 of 4"));
  scores.sequences.erase(scores.sequences.begin());
  context.storage_heads = 2;
  CHECK(token_scores(with_scores("scores:budget=1:file=f", scores), context).size() == 12);
  CHECK_THROWS_WITH(token_scores(spec_of("scores:budget=1:file=f"), context), ContainsSubstring("file=f was not read"));
  CHECK(names_heads(spec));
}
