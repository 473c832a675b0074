#include <algorithm>

#include "sim/attention/noisy_softmax.hpp"
#include "sim/core/text.hpp"
#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/noise.hpp"
#include "sim/policy/page_victims.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRecent = {true, 0.3};

bool parse_positive(std::string_view text, double& value) {
  value = parse_decimal(text).value_or(0);
  return value > 0 && value <= 1000;
}

}  // namespace

NoiseMode keyformer_noise(const PolicySpec& spec) {
  const std::string mode = spec.choice("noise", {"token", "query", "none"}, "token");
  if (mode == "none") return NoiseMode::kNone;
  return mode == "query" ? NoiseMode::kPerQuery : NoiseMode::kPerToken;
}

Temperature keyformer_temperature(const PolicySpec& spec) {
  const std::string_view text = spec.find("tau").value_or("1..2");
  const std::size_t dots = text.find("..");
  Temperature t;
  const bool begins = parse_positive(text.substr(0, dots), t.begin);
  const bool ends = parse_positive(dots == std::string_view::npos ? text : text.substr(dots + 2), t.end);
  if (!begins || !ends) {
    throw usage_error(
        fmt::format("policy {}: tau=`{}`: expected a temperature above 0 and up to 1000, or two as in 1..2", spec.name,
                    shown(text)));
  }
  return t;
}

namespace {

float damping_of(const PolicySpec& spec) { return static_cast<float>(spec.number("damping", 1, 0, 1)); }
std::string score_of(const PolicySpec& spec) { return spec.choice("score", {"head", "layer", "shared"}, "head"); }
bool is_layer_score(const PolicySpec& spec) { return score_of(spec) != "head"; }

// Score of a token: f ← damping · f + softmax((x + ζ) / τ) over the cached keys, for every row since it came, its own
// included; with score=layer that of all heads is added up where victims are chosen, with score=shared those heads are
// the whole model's.
class Keyformer final : public EvictionPolicy {
 public:
  Keyformer(const PolicySpec& spec, const PolicyContext& context, NoiseSource noise)
      : recent_(tokens_or_share(spec, "recent", kDefaultRecent)),
        reduction_(group_reduction(spec)),
        mode_(keyformer_noise(spec)),
        damping_(damping_of(spec)),
        layer_score_(is_layer_score(spec)),
        temperature_(keyformer_temperature(spec)),
        context_(context),
        noise_(std::move(noise)),
        heads_(context.storage_heads,
               Head(mode_ == NoiseMode::kPerToken ? context.group : 0, spec.count("page", 1))) {}

  void admit(HeadId head, SlotId slot, TokenPos position) override {
    Head& h = heads_[head.value];
    h.scores.admit(slot, position);
    if (mode_ != NoiseMode::kPerToken) return;
    h.all_drawn = h.all_drawn && h.draws;
    if (!h.all_drawn) return;
    h.noise.admit(slot);
    for (std::uint32_t g = 0; g < context_.group; ++g) {
      noise_(key_of(head, g), {&position, 1}, {&h.noise.at(g, slot), 1});
    }
  }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::uint32_t slots = rows.slots();
    h.walked += 2 * slots * sizeof(float) + slots * h.noise.bytes_per_slot();
    h.draws = rows.unscaled.values == nullptr;
    if (!h.draws) return h.scores.add({rows.unscaled, rows.group, reduction_, damping_}, slots);
    const float tau = temperature_.at(rows.step, context_.requested_new_tokens);
    h.row.resize(std::size_t{rows.group} * slots);
    h.factors.resize(rows.group);
    for (std::uint32_t g = 0; g < rows.group; ++g) {
      h.factors[g] = exponentials_with_noise(rows.logits_of(g), noise_of(head, g, rows), tau,
                                             std::span(h.row).subspan(std::size_t{g} * slots, slots));
    }
    h.scores.add({{h.row.data(), slots, h.factors.data()}, rows.group, reduction_, damping_}, slots);
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const auto slots = static_cast<std::uint32_t>(request.positions.size());
    const Candidates candidates = outside_recent(request, recent_);
    if (layer_score_) return h.choice.choose(sum_of_heads(slots), candidates, request.excess, victims);
    h.choice.choose(h.scores, candidates, request.excess, victims);
    h.walked += slots * sizeof(float);
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    if (layer_score_) return heads_.front().choice.gap(sums_, a, b);
    const Head& h = heads_[head.value];
    return h.choice.gap(h.scores, a, b);
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.scores.move(moves);
    if (h.all_drawn) h.noise.move(moves);
    h.walked += moves.size() * 2 * (sizeof(float) + h.noise.bytes_per_slot());
  }

  [[nodiscard]] std::unique_ptr<EvictionPolicy> clone() const override { return std::make_unique<Keyformer>(*this); }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    Head(std::uint32_t columns, std::uint32_t page) : noise(columns), choice(page) {}
    GrowingScores scores;
    SlotColumns<float> noise;  // with one draw a token, of each query head of the group
    bool draws = false;     // the last row came without its noise, and so the next is likely to
    bool all_drawn = true;  // of the tokens that are held
    PageVictims choice;
    std::vector<float> row, factors, drawn;
    std::uint64_t walked = 0;
  };

  std::span<const float> sum_of_heads(std::uint32_t slots) {
    sums_.assign(slots, 0.0F);
    for (Head& h : heads_) {
      accumulate(GroupReduction::kSum, h.scores.of(slots).data(), 1, sums_);
      h.walked += slots * sizeof(float);
    }
    return sums_;
  }

  [[nodiscard]] NoiseKey key_of(HeadId head, std::uint32_t g) const {
    return noise_key(context_, head.value * context_.group + g);
  }

  std::span<const float> noise_of(HeadId head, std::uint32_t g, const AttentionRows& rows) {
    Head& h = heads_[head.value];
    if (mode_ == NoiseMode::kNone) return {};
    if (mode_ == NoiseMode::kPerToken) {
      if (!h.all_drawn) draw_all(head, rows);
      return h.noise.column(g, rows.slots());
    }
    NoiseKey key = key_of(head, g);
    key.query_position = rows.query.value;
    h.drawn.resize(rows.slots());
    noise_(key, rows.positions, h.drawn);
    return h.drawn;
  }

  void draw_all(HeadId head, const AttentionRows& rows) {
    Head& h = heads_[head.value];
    h.noise.admit(SlotId(rows.slots() - 1));  // room for all
    for (std::uint32_t g = 0; g < rows.group; ++g) {
      noise_(key_of(head, g), rows.positions, h.noise.column(g, rows.slots()));
    }
    h.all_drawn = true;
  }

  TokensOrShare recent_;
  GroupReduction reduction_;
  NoiseMode mode_;
  float damping_;
  bool layer_score_;
  Temperature temperature_;
  PolicyContext context_;
  NoiseSource noise_;
  std::vector<Head> heads_;
  std::vector<float> sums_;  // over the heads of the layer
};

Draw draw_of(const PolicySpec& spec) {
  const std::string name = spec.choice("draw", {"gumbel", "gaussian", "constant"}, "gumbel");
  return name == "gumbel" ? Draw::kGumbel : name == "gaussian" ? Draw::kGaussian : Draw::kConstant;
}

// Operations on a slot: noise and temperature 2, softmax 26 (22 of them the exponential), the sum 1; a draw has two
// logarithms of 27.
constexpr double kScoreFlops = 29;
constexpr double kDrawFlops = 56;

PolicyTraits traits(const PolicySpec& spec) {
  (void)tokens_or_share(spec, "recent", kDefaultRecent);
  (void)keyformer_temperature(spec);
  (void)group_reduction(spec);
  const NoiseMode mode = keyformer_noise(spec);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.noisy_rows = {mode, mode == NoiseMode::kNone ? Draw::kConstant : draw_of(spec), keyformer_temperature(spec)};
  // With draws of each query's own, a row's largest term is seldom the one whose weight is exact.
  t.adds_up_rows = damping_of(spec) == 1 && mode != NoiseMode::kPerQuery;
  t.unit = group_unit(spec);
  read_page(spec, t);
  t.state_bytes = t.state_read = t.state_written = t.evict_read = sizeof(float);
  if (mode == NoiseMode::kPerToken) t.query_head_state = sizeof(float);
  t.flops_per_slot = kScoreFlops + (damping_of(spec) != 1 ? 1 : 0);
  const bool draws = draw_of(spec) != Draw::kConstant;
  if (mode == NoiseMode::kPerQuery && draws) t.noise_flops_per_slot = kDrawFlops;
  if (mode == NoiseMode::kPerToken && draws) t.noise_flops_per_token = kDrawFlops;
  if (is_layer_score(spec)) t.scope = score_of(spec) == "shared" ? Scope::kModel : Scope::kLayer;
  if (t.scope == Scope::kModel && spec.find("layers").value_or("uniform") != "uniform") {
    throw usage_error("policy keyformer: with score=shared all layers keep one set, so that layers= cannot tell them "
                      "apart; give one of them");
  }
  read_schedule(spec, t);
  read_layers(spec, t);
  return t;
}

ScoreRecipe recipe(const PolicySpec& spec) {
  const bool drawn = keyformer_noise(spec) != NoiseMode::kNone;
  const bool plain = damping_of(spec) == 1 && !is_layer_score(spec) && (!drawn || draw_of(spec) == Draw::kGumbel);
  return {.kind = ScoreRecipe::Kind::kNoisySum,
          .complete = plain,
          .recent = tokens_or_share(spec, "recent", kDefaultRecent),
          .reduction = group_reduction(spec),
          .noise = keyformer_noise(spec),
          .temperature = keyformer_temperature(spec)};
}

constexpr ParamInfo kParams[] = {
    {"recent", "tokens | share of k", "0.3", "most recent tokens, which always stay; the others are key tokens"},
    {"noise", "token | query | none", "token",
     "noise on the logits: drawn once a token, anew for every query, or none"},
    {"draw", "gumbel | gaussian | constant", "gumbel",
     "its distribution: Gumbel's, for the paper's ablation a normal one of the same mean and deviation, or that mean"},
    {"damping", "share", "1", "what f keeps of itself with every row, as in the paper's ablation; 1: all"},
    {"score", "head | layer | shared", "head",
     "f of each head, or one for all heads of a layer, or of all layers, which then keep one set"},
    {"tau", "A..B", "1..2", "temperature: A in the prompt, then rising evenly to B with the last requested token"},
    kGroupParam,
    kPageParam,
    kWhenParam,
    kLayersParam,
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_keyformer(const PolicySpec& spec, const PolicyContext& context,
                                               NoiseSource noise) {
  return std::make_unique<Keyformer>(spec, context, std::move(noise));
}

extern const PolicyInfo kKeyformerPolicy;
constinit const PolicyInfo kKeyformerPolicy = {
    .name = "keyformer",
    .summary =
        "Keeps recent and key tokens: those with the largest sum of softmax((logit + Gumbel noise) / temperature).",
    .source = "Keyformer: Adnan et al., MLSys 2024; the paper's algorithm, not the masks of its code",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec,
               const PolicyContext& context) { return make_keyformer(spec, context, draws_of(draw_of(spec))); },
    .recipe = recipe,
};

}  // namespace kvroof
