#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

WindowRule finch_rule(const PolicySpec& spec) {
  return {.window = spec.count("window", WindowRule{}.window, 1),
          .kernel = 1,
          .reduction = group_reduction(spec),
          .by_even_share = true};
}

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = window_traits(spec, finch_rule(spec));
  t.flops_per_slot = 2;
  t.needs.add(HostNeed::kSlotPositions, reads_slot_positions(spec));
  return t;
}

constexpr ParamInfo kParams[] = {
    {"window", "tokens", "32", "the prompt's last rows, its question, which score the others and whose tokens stay"},
    kPositionsParam,
    kGroupParam,
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  return full_window_advice(finch_rule(spec).window, k);
}

}  // namespace

extern const PolicyInfo kFinchPolicy;
constinit const PolicyInfo kFinchPolicy = {
    .name = "finch",
    .summary = "Once after the prompt: keeps its question and the tokens to which the question's rows pay the most "
               "attention, each measured by an even share.",
    .source = "FINCH: Corallo and Papotti, TACL 2024; as kvpress does, the whole prompt at once",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<WindowScoredPolicy>(finch_rule(spec), context);
    },
    .advice = advice,
};

}  // namespace kvroof
