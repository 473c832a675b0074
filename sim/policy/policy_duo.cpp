#include <algorithm>
#include <limits>

#include "sim/policy/head_values.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

struct Options {
  explicit Options(const PolicySpec& spec)
      : sinks(spec.count("sinks", 64)),
        recent(spec.count("recent", 256, 1)),
        share(spec.number("retrieval", 0.5, 0, 1)),
        gate(spec.number("gate", 0.5, 0, 1)) {}

  std::uint32_t sinks, recent;
  double share, gate;
};

// Heads are of two kinds for good: retrieval heads keep everything, streaming heads sinks and recent tokens.
class Duo final : public StatelessPolicy {
 public:
  Duo(const PolicySpec& spec, const PolicyContext& context) : options_(spec) {
    const std::span<const float> gates = head_values(spec, context);
    const std::uint64_t before = std::uint64_t{context.layer.value} * context.storage_heads;
    for (std::uint32_t h = 0; h < context.storage_heads; ++h) {
      retrieves_.push_back(gates.empty() ? is_chosen(before + h) : static_cast<double>(gates[h]) >= options_.gate);
    }
  }

  void capacities(TokenPos, std::uint32_t, std::span<std::uint32_t> slots) override {
    constexpr std::uint32_t kAll = std::numeric_limits<std::uint32_t>::max();
    const auto streaming = static_cast<std::uint32_t>(
        std::min(std::uint64_t{options_.sinks} + options_.recent, std::uint64_t{kAll}));
    for (std::size_t h = 0; h < slots.size(); ++h) slots[h] = retrieves_[h] ? kAll : streaming;
  }

  void evict(HeadId, const EvictRequest& request, std::vector<SlotId>& victims) override {
    evict_oldest(request, options_.sinks, victims);
  }

 private:
  // Heads are numbered through the model: retrieval heads lie evenly among them.
  [[nodiscard]] bool is_chosen(std::uint64_t head) const {
    const auto so_far = [&](std::uint64_t heads) {
      return static_cast<std::uint64_t>(options_.share * static_cast<double>(heads) + 1e-9);
    };
    return so_far(head + 1) > so_far(head);
  }

  Options options_;
  std::vector<bool> retrieves_;  // by head
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)Options(spec);
  PolicyTraits t;
  t.capacities = Capacities::kByHead;
  t.tells_heads_apart = true;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"heads", "FILE", "none",
     "a gate for each head: a line a layer, a number a KV head; without it `retrieval` decides"},
    {"gate", "number", "0.5", "heads with at least this gate are retrieval heads"},
    {"retrieval", "share", "0.5", "without a file: share of all heads that are retrieval heads, evenly spread"},
    {"sinks", "tokens", "64", "first tokens that a streaming head keeps"},
    {"recent", "tokens", "256", "most recent tokens that it keeps"},
};

}  // namespace

extern const PolicyInfo kDuoPolicy;
constinit const PolicyInfo kDuoPolicy = {
    .name = "duo",
    .summary = "Retrieval heads keep every token, streaming heads their first and most recent ones.",
    .source = "DuoAttention: Xiao et al., 2024; its split of heads, from its file of gates",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Duo>(spec, context);
    },
    .takes_budget = false,
};

}  // namespace kvroof
