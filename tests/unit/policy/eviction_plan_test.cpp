#include "sim/policy/eviction_plan.hpp"

#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

FutureAttention future_of_rows(std::uint32_t prompt, const std::vector<std::vector<float>>& rows) {
  FutureAttention future(1, prompt, prompt + static_cast<std::uint32_t>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    future.set_row(0, TokenPos(prompt + static_cast<std::uint32_t>(i)), rows[i]);
  }
  future.finish(0);
  return future;
}

// The least that can be lost from `time` on, trying every set of evictions.
double least_loss(const FutureAttention& future, std::uint32_t prompt, std::span<const std::uint32_t> evictions,
                  std::uint32_t time, std::vector<bool>& gone) {
  while (time < evictions.size() && evictions[time] == 0) ++time;
  if (time == evictions.size()) return 0;
  std::vector<std::uint32_t> left(evictions.begin(), evictions.end());
  --left[time];
  double least = 1e300;
  for (std::uint32_t token = 0; token < prompt + time; ++token) {
    if (gone[token]) continue;
    gone[token] = true;
    const double rest = least_loss(future, prompt, left, time, gone);
    least = std::min(least, rest + static_cast<double>(future.after(time, 0)[token]));
    gone[token] = false;
  }
  return least;
}

double loss_of(const FutureAttention& future, const std::vector<std::uint32_t>& plan) {
  double loss = 0;
  for (std::uint32_t token = 0; token < plan.size(); ++token) {
    if (plan[token] != kNeverEvicted) loss += static_cast<double>(future.after(plan[token], 0)[token]);
  }
  return loss;
}

}  // namespace

TEST_CASE("what is still to come adds up the rows from the last to the first") {
  const FutureAttention future = future_of_rows(2, {{0.5F, 0.25F, 0.25F}, {0.125F, 0.5F, 0.25F, 0.125F}});
  CHECK(std::ranges::equal(future.after(0, 0), std::vector<float>{0.625F, 0.75F, 0.5F, 0.125F}));
  CHECK(std::ranges::equal(future.after(1, 0), std::vector<float>{0.125F, 0.5F, 0.25F, 0.125F}));
}

TEST_CASE("the best evictions are better than the greedy ones, which hold a slot for what is read late") {
  // Token 0 is read once, at the end; each decoded token is read much by the next query, then never. One slot.
  const FutureAttention future = future_of_rows(
      1, {{0.0F, 1.0F}, {0.0F, 0.5F, 0.5F}, {0.0F, 0.0F, 0.5F, 0.5F}, {0.6F, 0.0F, 0.0F, 0.2F, 0.2F}});
  const std::vector<std::uint32_t> plan = best_evictions(future, 0, 1, std::vector<std::uint32_t>{0, 1, 1, 1});
  CHECK(plan == std::vector<std::uint32_t>{1, 2, 3, kNeverEvicted, kNeverEvicted});
  CHECK(loss_of(future, plan) == Approx(0.6));  // greedy gives up 0.5 + 0.5 + 0.2
}

TEST_CASE("no other evictions lose less, however many the prompt and the steps need") {
  constexpr std::uint32_t kPrompt = 5, kSteps = 5;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::vector<std::vector<float>> rows;
    for (std::uint32_t t = kPrompt; t < kPrompt + kSteps; ++t) {
      std::vector<float>& row = rows.emplace_back();
      for (std::uint32_t j = 0; j <= t; ++j) {
        const float u = uniform_draw({.seed = seed, .query_head = t, .position = j});
        row.push_back(std::floor(u * u * u * 64) / 64);  // few values, so that there are ties
      }
    }
    const FutureAttention future = future_of_rows(kPrompt, rows);
    for (std::uint32_t first = 0; first < kPrompt; ++first) {
      const std::vector<std::uint32_t> evictions = {first, 1, seed % 2, 1, 1};
      const std::vector<std::uint32_t> plan = best_evictions(future, 0, kPrompt, evictions);
      for (std::uint32_t time = 0; time < evictions.size(); ++time) {
        CHECK(std::ranges::count(plan, time) == evictions[time]);
      }
      for (std::uint32_t token = kPrompt; token < plan.size(); ++token) CHECK(plan[token] > token - kPrompt);
      std::vector<bool> gone(kPrompt + kSteps);
      CHECK(loss_of(future, plan) == Approx(least_loss(future, kPrompt, evictions, 0, gone)).margin(1e-6));
    }
  }
}

TEST_CASE("oracle-causal: no policy of k tokens a head has more mean recall, and the oracle has more at every step") {
  const Shape shape = {.query_heads = 4, .kv_heads = 2, .prompt = 40, .decode = 60};
  const auto recall = [](const Positions& attended, std::uint32_t head, std::uint32_t t) {
    double all = 0;
    double part = 0;
    for (std::uint32_t j = 0; j <= t; ++j) {
      const double e = std::exp(static_cast<double>(random_logit(head, t, j)));
      all += e;
      if (j == t || std::ranges::binary_search(attended, j)) part += e;
    }
    return part / all;
  };
  Driver oracle(spec_of("oracle:budget=12"), shape, random_logit);
  oracle.prompt();
  std::vector<Driver> all;
  for (const char* name : {"oracle-causal", "h2o", "h2o:group=none", "keyformer", "window", "streaming", "tova", "a2sf",
                           "scissorhands", "random"}) {
    all.emplace_back(spec_of(fmt::format("{}:budget=12", name)), shape, random_logit);
    all.back().prompt();
  }
  std::vector<std::vector<double>> sums(all.size(), std::vector<double>(shape.query_heads));
  for (std::uint32_t t = shape.prompt; t < shape.prompt + shape.decode; ++t) {
    oracle.row(t);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::uint32_t heads = all[i].policy().storage_heads();
      for (std::uint32_t h = 0; h < shape.query_heads; ++h) {
        const double now = recall(all[i].kept(h / (shape.query_heads / heads)), h, t);
        sums[i][h] += now;
        if (i == 0) CHECK(now <= recall(oracle.read(h), h, t) + 1e-12);
      }
      all[i].row(t);
    }
  }
  for (std::size_t i = 1; i < all.size(); ++i) {
    for (std::uint32_t h = 0; h < shape.query_heads; ++h) CHECK(sums[0][h] >= sums[i][h] - 1e-4);
  }
}
