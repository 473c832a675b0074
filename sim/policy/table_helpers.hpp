// What the files of the policies share: parameters that several have, and the base of those that keep no state.
#pragma once

#include "sim/core/error.hpp"
#include "sim/policy/policy.hpp"
#include "sim/policy/scores.hpp"

namespace kvroof {

// A policy without per-slot state: it looks at positions alone.
class StatelessPolicy : public EvictionPolicy {
 public:
  void admit(HeadId, SlotId, TokenPos) override {}
  void observe(HeadId, const AttentionRows&) override {}
  void move(HeadId, std::span<const SlotMove>) override {}
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId) const override { return 0; }
};

// Appends the slots of the request.excess oldest tokens that are not among the first `sinks`.
void evict_oldest(const EvictRequest& request, std::uint32_t sinks, std::vector<SlotId>& victims);

// The recent window of a request: the parameter applied to its budget.
inline Candidates outside_recent(const EvictRequest& request, const TokensOrShare& recent) {
  return {request.positions, request.newest, recent.of(request.budget)};
}

// How many of the last rows a policy remembers of every token, one at least.
std::uint32_t remembered_rows(const PolicySpec& spec, std::string_view key, std::uint32_t fallback);
// Of policies whose first tokens go, the oldest first, where beside the recent ones k has no room for all of them:
// what to know of such a k.
std::string room_for_sinks_advice(std::uint32_t sinks, const TokensOrShare& recent, std::uint32_t k);

// when=every_step|prefill|r: sets schedule and interval.
void read_schedule(const PolicySpec& spec, PolicyTraits& traits);
// positions=slot: HostNeed::kSlotPositions.
bool reads_slot_positions(const PolicySpec& spec);
// group=sum|mean|max|none; `none` stores k and v once for each query head.
StorageUnit group_unit(const PolicySpec& spec);
// group=mean|none, of policies that know no other way.
StorageUnit mean_or_none_unit(const PolicySpec& spec);
GroupReduction group_reduction(const PolicySpec& spec);

inline constexpr ParamInfo kWhenParam = {
    "when", "every_step | prefill | 8", "every_step",
    "evict after every step, once after the prompt, or after every so many steps, which may exceed the budget between"};
inline constexpr ParamInfo kPositionsParam = {
    "positions", "original | slot", "original",
    "what attention takes for the position of a token while decoding: its own, or its place among the tokens held, as "
    "the authors' code does"};
inline constexpr ParamInfo kGroupParam = {
    "group", "sum | mean | max | none", "sum",
    "how the query heads that share a KV head score together; none: a set for each, "
    "k and v stored for each"};

}  // namespace kvroof
