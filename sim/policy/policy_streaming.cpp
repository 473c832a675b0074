#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultSinks = 4;

// With a budget that is only known when the prompt is, the newest token stays and the sinks give way.
class Streaming final : public StatelessPolicy {
 public:
  explicit Streaming(std::uint32_t sinks) : sinks_(sinks) {}
  void evict(HeadId, const EvictRequest& request, std::vector<SlotId>& victims) override {
    evict_oldest(request, std::min(sinks_, request.budget - 1), victims);
  }

 private:
  std::uint32_t sinks_;
};

PolicyTraits traits(const PolicySpec& spec) {
  const std::uint32_t sinks = spec.count("sinks", kDefaultSinks);
  if (spec.budget.kind == Budget::Kind::kTokens && spec.budget.value <= sinks) {
    throw usage_error(fmt::format("policy streaming: a budget of {} leaves no recent token beside {} sinks",
                                  spec.budget.describe(), sinks))
        .note("raise the budget or lower sinks");
  }
  PolicyTraits t;
  read_schedule(spec, t);
  read_layers(spec, t);
  t.slot_positions = spec.choice("positions", {"original", "slot"}, "original") == "slot";
  return t;
}

constexpr ParamInfo kParams[] = {
    {"sinks", "tokens", "4",
     "first tokens that always stay; a budget too small for them keeps the newest and fewer sinks"},
    {"positions", "original | slot", "original",
     "what attention takes for the position of a token while decoding: its own, or its place among the tokens held, as "
     "the authors' code does"},
    kWhenParam,
    kLayersParam,
};

}  // namespace

extern const PolicyInfo kStreamingPolicy;
constinit const PolicyInfo kStreamingPolicy = {
    .name = "streaming",
    .summary = "Keeps the first tokens (attention sinks) and the most recent ones.",
    .source = "StreamingLLM: Xiao et al., ICLR 2024",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext&) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Streaming>(spec.count("sinks", kDefaultSinks));
    },
    .recipe = [](const PolicySpec& spec) { return ScoreRecipe{.sinks = spec.count("sinks", kDefaultSinks)}; },
};

}  // namespace kvroof
