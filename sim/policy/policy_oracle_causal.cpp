#include "sim/policy/eviction_plan.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

// Evicts by the best plan for the head, which is made when the head is first asked to.
class OracleCausal final : public StatelessPolicy {
 public:
  OracleCausal(const PolicySpec& spec, const PolicyContext& context)
      : budget_(spec.budget), prompt_(context.prompt), future_(context.future), plans_(context.storage_heads) {}

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    if (future_ == nullptr || request.step.value >= future_->steps()) return evict_oldest(request, 0, victims);
    std::vector<std::uint32_t>& plan = plans_[head.value];
    if (plan.empty()) plan = best_evictions(*future_, head.value, prompt_, evictions());
    const std::size_t before = victims.size();
    for (std::uint32_t s = 0; s < request.positions.size(); ++s) victims.emplace_back(s);
    const auto begin = victims.begin() + static_cast<std::ptrdiff_t>(before);
    const auto end = begin + request.excess;
    // A window may have taken another token instead of the planned one, which then goes next.
    std::nth_element(begin, end - 1, victims.end(), [&](SlotId a, SlotId b) {
      const TokenPos x = request.positions[a.value];
      const TokenPos y = request.positions[b.value];
      return plan[x.value] != plan[y.value] ? plan[x.value] < plan[y.value] : x < y;
    });
    victims.erase(end, victims.end());
  }

 private:
  // How many tokens go after each number of decoded ones; what goes after the last decoded token loses nothing.
  [[nodiscard]] std::vector<std::uint32_t> evictions() const {
    std::vector<std::uint32_t> counts;
    std::uint32_t held = prompt_;
    for (std::uint32_t step = 0; step < future_->steps(); ++step, ++held) {
      const std::uint32_t most = budget_.tokens(prompt_, prompt_ + step);
      counts.push_back(held > most ? held - most : 0);
      held -= counts.back();
    }
    return counts;
  }

  Budget budget_;
  std::uint32_t prompt_;
  const FutureAttention* future_;
  std::vector<std::vector<std::uint32_t>> plans_;  // by head, then token: after how many decoded tokens it goes
};

}  // namespace

extern const PolicyInfo kOracleCausalPolicy;
constinit const PolicyInfo kOracleCausalPolicy = {
    .name = "oracle-causal",
    .summary =
        "Evicts what loses least of the attention still to come, which it knows: the upper bound without return, in "
        "replay only.",
    .source = "bound: no method that keeps k tokens a head and evicts for good has a larger mean recall",
    .params = {},
    .traits =
        [](const PolicySpec&) {
          PolicyTraits t;
          t.unit = StorageUnit::kQueryHead;
          t.needs = {HostNeed::kFuture};
          t.bound = true;
          return t;
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<OracleCausal>(spec, context);
    },
};

}  // namespace kvroof
