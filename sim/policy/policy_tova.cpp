#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

bool is_kvpress(const PolicySpec& spec) {
  return spec.choice("rule", {"repository", "kvpress"}, "repository") == "kvpress";
}

// Score of a token: the attention of the newest query, summed over all heads of the layer, which keep one set.
class Tova final : public EvictionPolicy {
 public:
  Tova(bool keeps_newest, std::uint32_t heads) : recent_(keeps_newest ? 1 : 0), heads_(heads) {}

  void admit(HeadId, SlotId, TokenPos) override {}

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    h.row.assign(rows.slots(), 0.0F);
    accumulate(GroupReduction::kSum, rows.weights, rows.group, h.row);
    h.walked += rows.slots() * sizeof(float);
  }

  void evict(HeadId, const EvictRequest& request, std::vector<SlotId>& victims) override {
    sums_.assign(request.positions.size(), 0.0F);
    for (Head& h : heads_) {
      h.row.resize(sums_.size(), 0.0F);  // empty where an engine follows the recipe, and shows no rows
      accumulate(GroupReduction::kSum, h.row.data(), 1, sums_);
      h.walked += request.positions.size() * sizeof(float);
    }
    lowest(sums_, {request.positions, request.newest, recent_}, request.excess, victims);
  }

  [[nodiscard]] double score_gap(HeadId, SlotId a, SlotId b) const override {
    return relative_gap(sums_[a.value], sums_[b.value]);
  }

  // The row of a head is that of its last query; a window may take a token out of it before the others are chosen.
  void move(HeadId head, std::span<const SlotMove> moves) override {
    std::vector<float>& row = heads_[head.value].row;
    for (const SlotMove& m : moves) {
      if (m.from.value < row.size()) row[m.to.value] = row[m.from.value];
    }
  }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    std::vector<float> row;
    std::uint64_t walked = 0;
  };
  std::uint32_t recent_;
  std::vector<Head> heads_;
  std::vector<float> sums_;
};

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t;
  t.rows = RowNeed::kLast;
  t.last_rows = 1;
  t.needs_weights = true;
  t.reads_logits = false;
  t.scope = Scope::kLayer;
  read_layers(spec, t);
  read_schedule(spec, t);
  if (is_kvpress(spec)) {
    if (spec.find("when")) throw usage_error("policy tova: rule=kvpress evicts once after the prompt; leave out when");
    t.schedule = Schedule::kPrefillOnly;
  }
  t.state_written = t.evict_read = sizeof(float);
  t.flops_per_slot = 1;
  return t;
}

ScoreRecipe recipe(const PolicySpec& spec) {
  return {.kind = ScoreRecipe::Kind::kLastRow, .recent = {.is_share = false, .value = is_kvpress(spec) ? 1.0 : 0.0}};
}

constexpr ParamInfo kParams[] = {
    {"rule", "repository | kvpress", "repository",
     "repository: after every step, and the newest token may go at once; kvpress: once after the prompt, whose last "
     "token stays"},
    kWhenParam,
    kLayersParam,
};

}  // namespace

extern const PolicyInfo kTovaPolicy;
constinit const PolicyInfo kTovaPolicy = {
    .name = "tova",
    .summary = "Keeps the tokens that the newest query attends to most, one set for all heads of a layer.",
    .source = "TOVA: Oren et al., EMNLP 2024; as its code and kvpress do",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Tova>(is_kvpress(spec), context.storage_heads);
    },
    .recipe = recipe,
};

}  // namespace kvroof
