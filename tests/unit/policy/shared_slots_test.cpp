// Slots that the heads of a layer share by their scores.
#include "sim/policy/shared_slots.hpp"

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

using Slots = std::vector<std::uint32_t>;

Slots shared(const std::vector<std::vector<float>>& scores, std::size_t safe, std::size_t open) {
  return share_slots(std::vector<std::span<const float>>(scores.begin(), scores.end()), safe, open);
}

// What each of two heads keeps of a prompt whose keys and values, those of the first head first, have one element each.
std::vector<Positions> kept_of(const std::string& policy, std::vector<float> keys, std::vector<float> values) {
  const auto n = static_cast<std::uint32_t>(keys.size() / 2);
  const std::vector<float> ones(keys.size(), 1.0F);
  DriverRows rows(ones, std::move(keys), std::move(values), 2, 2, n, n);
  Driver driver(spec_of(policy), {.query_heads = 2, .kv_heads = 2, .prompt = n, .width = 1},
                [](auto, auto, auto) { return 0.0F; }, std::move(rows));
  driver.prompt();
  return {driver.kept(0), driver.kept(1)};
}

}  // namespace

TEST_CASE("heads share slots by where the highest scores lie, beside what is safe in each") {
  const std::vector<std::vector<float>> scores = {{9, 1, 7, 8}, {2, 3, 1, 6}};
  CHECK(shared(scores, 0, 4) == Slots{3, 1});
  CHECK(shared(scores, 1, 2) == Slots{3, 1});
  CHECK(shared(scores, 2, 0) == Slots{2, 2});
  CHECK(shared(scores, 2, 1) == Slots{3, 2});
  CHECK(shared(scores, 0, 8) == Slots{4, 4});
  // Of equals the younger wins, then the later head.
  CHECK(shared({{5, 5}, {5, 5}}, 0, 1) == Slots{0, 1});
  CHECK(shared({{5, 5}, {5, 4}}, 0, 2) == Slots{1, 1});
}

TEST_CASE("what is safe is at least one slot, unless nothing is") {
  CHECK(safe_slots(0.2, 50) == 10);
  CHECK(safe_slots(0.2, 3) == 1);
  CHECK(safe_slots(0, 50) == 0);
  CHECK(safe_slots(1, 7) == 7);
}

TEST_CASE("adakv over knorm gives slots to the heads with the smallest keys, and each keeps at least one") {
  const std::vector<float> apart = {1, 2, 3, 4, 5, 6, 7, 8}, mixed = {1, 6, 3, 8, 2, 5, 7, 4};
  const auto kept = [](const std::string& more, const std::vector<float>& keys) {
    return kept_of("adakv:budget=2:inner=knorm" + more, keys, keys);
  };
  CHECK(kept("", apart) == std::vector<Positions>{{0, 1, 2}, {0}});
  CHECK(kept(":safeguard=1", apart) == std::vector<Positions>{{0, 1}, {0, 1}});
  CHECK(kept("", mixed) == std::vector<Positions>{{0, 2}, {0, 3}});
  // Without a safeguard the other head has no claim among the best, and a head holds one token at least.
  CHECK(kept(":safeguard=0", apart) == std::vector<Positions>{{0, 1, 2, 3}, {0}});
}

TEST_CASE("the first tokens that expected-attention protects stay in heads whose scores are small as well") {
  // Even expected weights of 1 / 6, times v: 16.7 in the first head, 0.017 in the second.
  const std::vector<float> keys(16, 1.0F);
  std::vector<float> values(16, 0.1F);
  std::fill_n(values.begin(), 8, 100.0F);
  CHECK(kept_of("adakv:budget=3:inner=expected-attention:sinks=2", keys, values) ==
        std::vector<Positions>{{0, 1, 6, 7}, {0, 1}});
}
