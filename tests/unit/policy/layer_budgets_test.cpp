// layers=: budgets of the layers that add up to layers · k.
#include "sim/policy/layer_budgets.hpp"

#include <algorithm>
#include <numeric>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::vector<std::uint32_t> budgets_of(const std::string& layers, std::uint32_t count, std::uint32_t budget,
                                      std::uint32_t prompt = 1000) {
  const std::vector<double> shares = layer_shares(spec_of("h2o:budget=0.5:layers=" + layers), count);
  std::vector<std::uint32_t> budgets;
  PolicyContext context;
  context.layers = count;
  context.prompt = prompt;
  for (std::uint32_t layer = 0; layer < count; ++layer) {
    context.layer = LayerId(layer);
    budgets.push_back(layer_budget(shares, context, budget, prompt + 1));
  }
  return budgets;
}

std::uint64_t sum_of(const std::vector<std::uint32_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

using Budgets = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("the budgets of all layers add up to layers times k, and every layer has at least one") {
  for (const char* layers : {"uniform", "pyramid", "funnel", "7/1/3", "1/0.001/1000", "persistence/0.99/0.5/0.01"}) {
    for (const std::uint32_t count : {1U, 2U, 5U, 32U}) {
      for (const std::uint32_t budget : {1U, 2U, 13U, 500U, 999U}) {
        INFO(layers << " " << count << " layers, k " << budget);
        const Budgets budgets = budgets_of(layers, count, budget);
        CHECK(sum_of(budgets) == std::uint64_t{count} * budget);
        CHECK(std::ranges::min(budgets) >= 1);
        CHECK(std::ranges::max(budgets) <= 1000);
      }
    }
  }
}

TEST_CASE("a list of shares is stretched over the layers, and the largest remainders get what is left") {
  CHECK(budgets_of("3/1", 2, 101) == Budgets{151, 51});
  CHECK(budgets_of("3/1", 3, 101) == Budgets{151, 101, 51});  // 3, 2, 1
  CHECK(budgets_of("1/2/1", 5, 71) == Budgets{51, 76, 101, 76, 51});
  CHECK(budgets_of("1/1/1.5", 3, 3) == Budgets{3, 3, 3});   // 1 + 1.71, 1.71, 2.57: the first two get the rest
  CHECK(budgets_of("2/2/3", 3, 2) == Budgets{2, 2, 2});     // 1 + 0.86, 0.86, 1.29
  CHECK(budgets_of("pyramid", 3, 101) == Budgets{196, 101, 6});
  CHECK(budgets_of("funnel", 3, 101) == Budgets{6, 101, 196});
}

TEST_CASE("persistence ratios give in inverse proportion, so that layers keep as many tokens that stay important") {
  const Budgets budgets = budgets_of("persistence/0.9/0.6/0.3", 3, 111);
  CHECK(budgets == Budgets{61, 91, 181});  // 330 beside one each, as 2 : 3 : 6
}

TEST_CASE("ratios between those of a list lie on straight lines, and budgets go with their inverses") {
  CHECK(budgets_of("persistence/0.9/0.3", 3, 111) == budgets_of("persistence/0.9/0.6/0.3", 3, 111));
  CHECK(budgets_of("persistence/1/0.2", 5, 400) == budgets_of("persistence/1/0.8/0.6/0.4/0.2", 5, 400));
  CHECK(budgets_of("persistence/0.5", 4, 40) == Budgets{40, 40, 40, 40});
}

TEST_CASE("no layer gets more than the prompt has tokens, and the others share what it does not take") {
  CHECK(budgets_of("pyramid", 3, 90, 100) == Budgets{100, 100, 70});
  CHECK(budgets_of("100/1/1", 3, 50, 100) == Budgets{100, 25, 25});
  // Nothing is shared while the budget holds every token.
  CHECK(budgets_of("pyramid", 2, 100, 60) == Budgets{100, 100});
}

TEST_CASE("policies keep the budgets of their layers, and nothing goes while k holds every token") {
  for (const char* name : {"h2o", "a2sf", "keyformer", "tova", "window", "streaming", "scissorhands:prompt=stream"}) {
    INFO(name);
    Shape shape = {.query_heads = 2, .kv_heads = 1, .prompt = 40, .decode = 20, .layers = 4};
    const auto capacities = [&](const std::string& layers, const char* budget) {
      std::vector<std::uint32_t> all;
      for (shape.layer = 0; shape.layer < shape.layers; ++shape.layer) {
        Driver driver(spec_of(fmt::format("{}:budget={}:layers={}", name, budget, layers)), shape, random_logit);
        driver.prompt();
        for (std::uint32_t t = shape.prompt; t < shape.prompt + shape.decode; ++t) driver.row(t);
        CHECK(driver.kept(0).size() <= driver.policy().capacity(HeadId(0)));
        if (std::string_view(name) != "scissorhands:prompt=stream") {
          CHECK(driver.kept(0).size() == driver.policy().capacity(HeadId(0)));
        }
        all.push_back(driver.policy().capacity(HeadId(0)));
      }
      return all;
    };
    CHECK(capacities("uniform", "13") == Budgets{13, 13, 13, 13});
    CHECK(capacities("pyramid", "13") == Budgets{24, 17, 9, 2});  // 48 beside one each, as 1.95 … 0.05
    CHECK(capacities("funnel", "13") == Budgets{2, 9, 17, 24});
    CHECK(capacities("pyramid", "60") == Budgets{60, 60, 60, 60});
    CHECK(capacities("persistence/0.9/0.3", "13") == capacities("persistence/0.9/0.7/0.5/0.3", "13"));
  }
}

TEST_CASE("layers that are no list of shares are refused by name") {
  for (const char* text : {"", "/", "1/", "1//2", "-1/2", "0/1", "1/x", "1e3", "nan", "inf", "2000000", "persistence",
                           "persistence/", "persistence/1.5", "persistence/0", "pyramide"}) {
    INFO(text);
    CHECK_THROWS_WITH(spec_of(fmt::format("h2o:budget=0.5:layers={}", text)),
                      Catch::Contains("policy h2o: layers=`") && Catch::Contains("expected"));
  }
}
