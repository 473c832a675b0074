#include <algorithm>
#include <bit>
#include <functional>

#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

// Keeps everything and reads, for each decoded query, the k + 1 tokens that it attends to most.
class Oracle final : public StatelessPolicy {
 public:
  Oracle(const PolicySpec& spec, const PolicyContext& context)
      : budget_(spec.budget), prompt_(context.prompt), heads_(context.storage_heads) {}

  void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read) override {
    const std::uint32_t count = budget_.tokens(prompt_, rows.query.value + 1) + 1;
    if (rows.step.value == 0 || rows.slots() <= count) return EvictionPolicy::select(head, g, rows, read);
    const std::span<const float> logits = rows.logits_of(g);
    Head& h = heads_[head.value];
    if (h.within.capacity() < logits.size()) {  // By doubling: a row more each step must not allocate each step.
      h.within.reserve(2 * logits.size());
      h.equal.reserve(2 * logits.size());
    }
    const float least = nth_largest(h, logits, count);
    const TokenPos oldest = oldest_equal(h, rows, logits, least, count);
    const std::size_t before = read.size();
    if (read.capacity() < before + logits.size()) read.reserve(2 * (before + logits.size()));
    read.resize(before + rows.slots());
    std::size_t at = before;
    for (std::uint32_t s = 0; s < rows.slots(); ++s) {
      read[at] = SlotId(s);
      at += logits[s] > least || (logits[s] == least && rows.positions[s] >= oldest) ? 1 : 0;
    }
    read.resize(at);
  }

  void evict(HeadId, const EvictRequest&, std::vector<SlotId>&) override {
    check(false, "the oracle is never asked to evict");
  }

 private:
  // Heads are served at once.
  struct Head {
    std::vector<std::uint32_t> bins;
    std::vector<float> within;
    std::vector<TokenPos> equal;
  };

  // Grows with x.
  static std::uint32_t key_of(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return bits >> 31U != 0 ? ~bits : bits | 0x80000000U;
  }

  // Values are counted by the leading bits of their keys; what is left to order are those of one bin.
  static float nth_largest(Head& h, std::span<const float> values, std::size_t n) {
    constexpr unsigned kShift = 21;
    h.bins.assign(std::size_t{1} << (32 - kShift), 0);
    for (const float x : values) ++h.bins[key_of(x) >> kShift];
    std::size_t bin = h.bins.size() - 1;
    for (; h.bins[bin] < n; --bin) n -= h.bins[bin];
    h.within.clear();
    for (const float x : values) {
      if (key_of(x) >> kShift == bin) h.within.push_back(x);
    }
    std::nth_element(h.within.begin(), h.within.begin() + static_cast<std::ptrdiff_t>(n) - 1, h.within.end(),
                     std::greater<>());
    return h.within[n - 1];
  }

  // Of the tokens with the logit `least` the newest are read, until there are `count`: the oldest of these.
  static TokenPos oldest_equal(Head& h, const AttentionRows& rows, std::span<const float> logits, float least,
                               std::size_t count) {
    h.equal.clear();
    std::size_t above = 0;
    for (std::uint32_t s = 0; s < rows.slots(); ++s) {
      above += logits[s] > least ? 1 : 0;
      if (logits[s] == least) h.equal.push_back(rows.positions[s]);
    }
    const auto at = h.equal.begin() + static_cast<std::ptrdiff_t>(count - above) - 1;
    std::nth_element(h.equal.begin(), at, h.equal.end(), std::greater<>());
    return *at;
  }

  Budget budget_;
  std::uint32_t prompt_;
  std::vector<Head> heads_;
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
