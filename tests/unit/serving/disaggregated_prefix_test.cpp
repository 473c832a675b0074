// Prefix caches of servers that compute prompts alone.
#include <optional>

#include "sim/serving/disaggregated.hpp"
#include "tests/catch.hpp"
#include "tests/support/hand_costs.hpp"

namespace kvroof {
namespace {

using test::HandCosts;
using test::limits_of;

constexpr std::uint32_t kBlock = 4, kPrompt = 2 * kBlock;  // tokens

// Two requests for one prompt and one for another come while the first moves, at a byte a second; the last long after.
ServingOutcome served(std::optional<double> idle_bytes) {
  PrefixTreeBuilder builder;
  std::vector<Request> requests;
  const auto ask = [&](double arrival, const std::vector<std::uint64_t>& blocks) {
    Request request{arrival, kPrompt, 2};
    request.prefix = builder.add(blocks, kBlock, kPrompt).last;
    requests.push_back(request);
  };
  ask(0, {1, 2});
  ask(1, {1, 2});
  ask(2, {3, 4});
  ask(50, {1, 2});
  const PrefixTree tree = builder.take();
  DisaggregatedSetup setup{limits_of(8, 100), limits_of(8, 100), 1, 1, {1, 0}, 0};
  setup.prefixes.emplace();
  setup.prefixes->tree = &tree;
  if (idle_bytes) setup.prefixes->most_bytes = *idle_bytes;
  return simulate_disaggregated(HandCosts(17), HandCosts(1000), setup, requests);
}

TEST_CASE("blocks of a prompt are held until it has moved, shared by prompts that come meanwhile, and found later") {
  const ServingOutcome o = served(std::nullopt);
  // Beside the 9 bytes of the first, 8 of them in blocks, the second needs 1: with 9 it would have no room. The third
  // needs 9 where 7 are free until the first has moved, 8 until the second has.
  CHECK(o.requests[0].first_token == Approx(0.8));
  CHECK(o.requests[0].transfer.ended == Approx(0.8 + 8));
  CHECK(o.requests[1].placed == Approx(1));
  CHECK(o.requests[1].first_token == Approx(1.1));  // its last token is computed
  CHECK(o.requests[1].transfer.ended == Approx(0.8 + 2 * 8));
  CHECK(o.requests[2].placed == Approx(0.8 + 2 * 8));
  CHECK(o.requests[3].first_token == Approx(50.1));
  std::vector<std::uint32_t> cached;
  for (const ServedRequest& r : o.requests) cached.push_back(r.cached);
  CHECK(cached == std::vector<std::uint32_t>{0, kPrompt - 1, 0, kPrompt - 1});
  CHECK(o.prompt_totals.evicted_blocks == 0);
  CHECK(o.totals.idle_byte_seconds == 0);  // servers of answers have no prefix cache
}

TEST_CASE("where a prefix cache has no bytes for idle blocks, they go when the prompt has moved") {
  const ServingOutcome o = served(0);
  CHECK(o.requests[1].cached == kPrompt - 1);
  CHECK(o.requests[3].cached == 0);
  CHECK(o.requests[3].first_token == Approx(50.8));
  CHECK(o.prompt_totals.evicted_blocks == 3 * 2);  // of each prompt that nobody else holds when it has moved
}

}  // namespace
}  // namespace kvroof
