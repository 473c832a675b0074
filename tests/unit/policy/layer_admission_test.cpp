#include <algorithm>

#include "sim/policy/layer_policy.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

using Admitted = std::vector<std::array<std::uint32_t, 3>>;  // head, slot, position

class Listening final : public EvictionPolicy {
 public:
  explicit Listening(Admitted& admitted) : admitted_(admitted) {}
  void admit(HeadId head, SlotId slot, TokenPos position) override {
    admitted_.push_back({head.value, slot.value, position.value});
  }
  void observe(HeadId, const AttentionRows&) override {}
  void evict(HeadId, const EvictRequest&, std::vector<SlotId>&) override {}
  void move(HeadId, std::span<const SlotMove>) override {}
  void add_keys(HeadId, std::span<const TokenPos>, HeadTensors&) override {}
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId) const override { return 0; }

 private:
  Admitted& admitted_;
};

constexpr std::uint32_t kHeads = 2, kPage = 2, kWidth = 8;
Admitted* listened = nullptr;

LayerPolicy listening(Admitted& admitted, std::uint32_t prompt, std::uint32_t window) {
  listened = &admitted;
  PolicyInfo info;
  info.name = "listening";
  info.traits = [](const PolicySpec&) {
    PolicyTraits traits;
    traits.noise_flops_per_token = 56;
    traits.page = kPage;
    return traits;
  };
  info.make = [](const PolicySpec&, const PolicyContext&) -> std::unique_ptr<EvictionPolicy> {
    return std::make_unique<Listening>(*listened);
  };
  PolicyContext context;
  context.prompt = prompt;
  context.window = window;
  context.head_dim = kWidth;
  return {info, {}, context, kHeads, kHeads};
}

}  // namespace

TEST_CASE("the first tokens of a prompt get the slots and counts at once that they get one by one") {
  DriverRows rows = DriverRows::random({.query_heads = kHeads, .kv_heads = kHeads, .prompt = 12, .width = kWidth});
  rows.serve(kHeads);
  for (const std::uint32_t window : {0, 1, 3, 4, 9}) {
    for (std::uint32_t count = 0; count <= 9; ++count) {
      INFO(window << " " << count);
      Admitted at_once, one_by_one;
      LayerPolicy a = listening(at_once, 12, window), b = listening(one_by_one, 12, window);
      a.admit_first(count);
      for (std::uint32_t t = 0; t < 12; ++t) {
        for (std::uint32_t h = 0; h < kHeads; ++h) {
          if (t >= count) a.admit(HeadId(h), TokenPos(t));
          b.admit(HeadId(h), TokenPos(t));
        }
      }
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        CHECK(std::ranges::equal(a.positions(HeadId(h)), b.positions(HeadId(h))));
      }
      for (LayerPolicy* policy : {&a, &b}) policy->finish_row(TokenPos(11), &rows);
      const LayerCounts ca = a.take_counts(), cb = b.take_counts();
      CHECK(ca.attended == cb.attended);
      const std::uint32_t hidden = window == 0 || window > 12 ? 0 : 12 - window;
      CHECK(ca.scored == kHeads * (6 - hidden / kPage) * 2 * kWidth);  // the bounds of the pages in sight
      CHECK(cb.scored == ca.scored);
      CHECK(ca.written == kHeads * 12);
      CHECK(cb.written == kHeads * 12);
      CHECK(ca.policy_flops.noise == kHeads * 12 * 56);
      const auto of_head = [](Admitted admitted) {
        std::ranges::stable_sort(admitted, {}, [](const auto& token) { return token[0]; });
        return admitted;
      };
      CHECK(of_head(at_once) == of_head(one_by_one));
    }
  }
}
