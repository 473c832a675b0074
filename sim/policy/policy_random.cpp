#include "sim/core/gumbel.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRecent = {false, 0};

// Each token draws a number once and the smallest goes: at every moment all tokens are kept with equal probability.
class Random final : public EvictionPolicy {
 public:
  Random(const PolicySpec& spec, const PolicyContext& context)
      : recent_(tokens_or_share(spec, "recent", kDefaultRecent)), context_(context), heads_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos position) override {
    Head& h = heads_[head.value];
    h.draws.admit(slot);
    h.draws.at(0, slot) = uniform_draw({.seed = context_.seed,
                                        .sequence = context_.sequence,
                                        .layer = context_.layer.value,
                                        .query_head = head.value,
                                        .position = position.value});
  }

  void observe(HeadId, const AttentionRows&) override {}

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const std::span<float> draws = h.draws.column(0, static_cast<std::uint32_t>(request.positions.size()));
    lowest(draws, outside_recent(request, recent_), request.excess, victims);
    h.walked += draws.size_bytes();
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.draws.move(moves);
    h.walked += moves.size() * 2 * h.draws.bytes_per_slot();
  }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    SlotColumns<float> draws{1};
    std::uint64_t walked = 0;
  };
  TokensOrShare recent_;
  PolicyContext context_;
  std::vector<Head> heads_;
};

constexpr ParamInfo kParams[] = {
    {"recent", "tokens | share of k", "0", "most recent tokens, which always stay"},
    kWhenParam,
};

}  // namespace

extern const PolicyInfo kRandomPolicy;
constinit const PolicyInfo kRandomPolicy = {
    .name = "random",
    .summary = "Keeps a random set, each token with equal probability: the lower control.",
    .source = "control",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          (void)tokens_or_share(spec, "recent", kDefaultRecent);
          PolicyTraits t;
          read_schedule(spec, t);
          t.state_bytes = t.evict_read = sizeof(float);
          t.noise_flops_per_token = 2;
          return t;
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Random>(spec, context);
    },
};

}  // namespace kvroof
