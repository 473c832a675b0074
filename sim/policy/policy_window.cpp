#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

class Window final : public StatelessPolicy {
 public:
  void evict(HeadId, const EvictRequest& request, std::vector<SlotId>& victims) override {
    evict_oldest(request, 0, victims);
  }
};

constexpr ParamInfo kParams[] = {kWhenParam, kLayersParam};

}  // namespace

extern const PolicyInfo kWindowPolicy;
constinit const PolicyInfo kWindowPolicy = {
    .name = "window",
    .summary = "Keeps the last k tokens at their original positions.",
    .source = "sliding-window attention; the baseline of the Keyformer and H2O papers",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          PolicyTraits t;
          t.evicts_whole_blocks = true;
          read_schedule(spec, t);
          read_layers(spec, t);
          return t;
        },
    .make = [](const PolicySpec&, const PolicyContext&) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Window>();
    },
    .recipe = [](const PolicySpec&) { return ScoreRecipe{}; },
};

}  // namespace kvroof
