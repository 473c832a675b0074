#include <algorithm>
#include <vector>

#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

// Keeps everything and reads, for each decoded query, the k + 1 tokens that it attends to most.
class Oracle final : public StatelessPolicy {
 public:
  Oracle(const PolicySpec& spec, const PolicyContext& context) : budget_(spec.budget), prompt_(context.prompt) {}

  void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read) override {
    const std::uint32_t count = budget_.tokens(prompt_, rows.query.value + 1) + 1;
    if (rows.step.value == 0 || rows.slots() <= count) return EvictionPolicy::select(head, g, rows, read);
    const std::span<const float> logits = rows.logits_of(g);
    const float least = bound_of_largest(logits, count);
    const std::size_t before = read.size();
    slots_at_least(logits, least, read);
    if (read.size() - before > count) leave_oldest(rows, logits, least, before, read.size() - before - count, read);
  }

  void evict(HeadId, const EvictRequest&, std::vector<SlotId>&) override {
    check(false, "the oracle is never asked to evict");
  }

 private:
  // Of the slots from `before` on whose logits are `least`, those of the oldest tokens are too many.
  static void leave_oldest(const AttentionRows& rows, std::span<const float> logits, float least, std::size_t before,
                           std::size_t excess, std::vector<SlotId>& read) {
    thread_local std::vector<TokenPos> equal;
    equal.clear();
    for (std::size_t i = before; i < read.size(); ++i) {
      if (logits[read[i].value] == least) equal.push_back(rows.positions[read[i].value]);
    }
    const auto newest = equal.begin() + static_cast<std::ptrdiff_t>(excess) - 1;
    std::ranges::nth_element(equal, newest);
    const TokenPos last = *newest;
    const auto leaves = [&](SlotId slot) {
      return logits[slot.value] == least && rows.positions[slot.value] <= last;
    };
    read.erase(std::remove_if(read.begin() + static_cast<std::ptrdiff_t>(before), read.end(), leaves), read.end());
  }

  Budget budget_;
  std::uint32_t prompt_;
};

}  // namespace

extern const PolicyInfo kOraclePolicy;
constinit const PolicyInfo kOraclePolicy = {
    .name = "oracle",
    .summary = "Reads the tokens with the most attention of each row, chosen anew: the upper bound, in replay only.",
    .source = "bound: no method that fixes its set before the query can do better",
    .params = {},
    .traits =
        [](const PolicySpec&) {
          PolicyTraits t;
          t.unit = StorageUnit::kQueryHead;
          t.selects = true;
          t.bound = true;
          return t;
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Oracle>(spec, context);
    },
};

}  // namespace kvroof
