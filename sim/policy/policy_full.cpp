#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

class Full final : public StatelessPolicy {
 public:
  void evict(HeadId, const EvictRequest&, std::vector<SlotId>&) override {
    check(false, "full is never asked to evict");
  }
};

}  // namespace

extern const PolicyInfo kFullPolicy;
constinit const PolicyInfo kFullPolicy = {
    .name = "full",
    .summary = "Keeps every token: the baseline of all ratios.",
    .source = "full attention",
    .params = {},
    .traits = [](const PolicySpec&) { return PolicyTraits{}; },
    .make = [](const PolicySpec&, const PolicyContext&) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Full>();
    },
    .takes_budget = false,
    .recipe = [](const PolicySpec&) { return ScoreRecipe{}; },
};

}  // namespace kvroof
