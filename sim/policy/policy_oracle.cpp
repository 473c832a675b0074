#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

// Keeps everything and reads, for each decoded query, the k + 1 tokens that it attends to most.
class Oracle final : public StatelessPolicy {
 public:
  Oracle(const PolicySpec& spec, const PolicyContext& context) : budget_(spec.budget), prompt_(context.prompt) {}

  void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read) override {
    const std::uint32_t count = budget_.tokens(prompt_, rows.query.value + 1);
    if (rows.step.value == 0 || rows.slots() - 1 <= count) return EvictionPolicy::select(head, g, rows, read);
    const auto before = static_cast<std::ptrdiff_t>(read.size());
    EvictionPolicy::select(head, g, rows, read);
    const std::span<const float> logits = rows.logits_of(g);
    const auto end = read.begin() + before + count + 1;
    std::nth_element(read.begin() + before, end - 1, read.end(), [&](SlotId a, SlotId b) {
      const float x = logits[a.value];
      const float y = logits[b.value];
      return x != y ? x > y : rows.positions[a.value] > rows.positions[b.value];
    });
    read.erase(end, read.end());
    std::sort(read.begin() + before, read.end());
  }

  void evict(HeadId, const EvictRequest&, std::vector<SlotId>&) override {
    check(false, "the oracle is never asked to evict");
  }

 private:
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
