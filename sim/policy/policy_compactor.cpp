#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "sim/policy/leverage.hpp"
#include "sim/policy/tile_attention.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultSinks = 8;
constexpr std::uint32_t kDefaultRecent = 4;
constexpr double kLeastDeviation = 1e-6;
constexpr float kProtected = std::numeric_limits<float>::max();

// Nothing: the share of the tokens that goes.
std::optional<double> blend_of(const PolicySpec& spec) {
  if (spec.find("blend").value_or("compression") == "compression") return std::nullopt;
  return spec.number("blend", 0, 0, 1e6);
}

// Scores become distances from the mean of the layer in standard deviations (unbiased).
void normalise(std::span<std::vector<double>* const> heads) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto* scores : heads) {
    for (const double x : *scores) sum += x;
    count += scores->size();
  }
  const double mean = sum / static_cast<double>(std::max<std::size_t>(count, 1));
  double squares = 0;
  for (const auto* scores : heads) {
    for (const double x : *scores) squares += (x - mean) * (x - mean);
  }
  const double deviation = count > 1 ? std::sqrt(squares / static_cast<double>(count - 1)) : 0;
  for (auto* scores : heads) {
    for (double& x : *scores) x = (x - mean) / std::max(deviation, kLeastDeviation);
  }
}

// A token's score is blend · its leverage + its non-causal attention, both in standard deviations over the heads of the
// layer. First and last tokens stay before all others and take no part in either.
class Compactor final : public StatelessPolicy {
 public:
  Compactor(const PolicySpec& spec, const PolicyContext& context, SketchSource source)
      : leverage_(spec, context, std::move(source)),
        attention_(spec),
        context_(context),
        budget_(spec.budget),
        blend_(blend_of(spec)),
        sinks_(spec.count("sinks", kDefaultSinks)),
        recent_(spec.count("recent", kDefaultRecent)),
        heads_(context.storage_heads) {}

  void score_head(HeadId head, const EvictRequest& request) override {
    Head& h = heads_[head.value];
    HeadTensors& tensors = *request.tensors;
    h.held.begin(request.positions);
    const std::span<const SlotId> order = h.held.order();
    const std::size_t n = order.size();
    h.first = std::min<std::size_t>(sinks_, n);
    const std::size_t scored = n - h.first - std::min<std::size_t>(recent_, n - h.first);
    tensors.read_keys(order, keys_);
    tensors.read_values(order, values_);
    read_queries_of_last(tensors, context_, n, queries_);
    h.leverage.clear();
    h.attention.clear();
    if (scored == 0) return;
    const auto part = [&](std::vector<float>& rows) {
      const std::size_t row = rows.size() / n;
      return std::span(rows).subspan(h.first * row, scored * row);
    };
    attention_.score({part(queries_), part(keys_), part(values_), tensors.key_width(), context_.group}, h.attention);
    positions_.clear();
    for (std::size_t i = 0; i < scored; ++i) positions_.push_back(request.positions[order[h.first + i].value]);
    leverage_.score(positions_, tensors.key_width(), part(keys_), h.leverage);
    tensors.count_flops(attention_.flops() + leverage_.flops());
    normalised_ = false;
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    normalise_layer();
    Head& h = heads_[head.value];
    const auto n = static_cast<std::uint32_t>(h.held.size());
    const double blend = blend_ ? *blend_ : 1 - kept_share(budget_, request.budget, n);
    h.held.scores.assign(n, kProtected);
    for (std::size_t i = 0; i < h.leverage.size(); ++i) {
      h.held.scores[h.first + i] = static_cast<float>(blend * h.leverage[i] + h.attention[i]);
    }
    h.held.give_up_lowest(request.excess, victims);
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    return heads_[head.value].held.gap(a, b);
  }

 private:
  struct Head {
    ScoresByAge held;
    std::size_t first = 0;                   // the first of them, by age, that has scores
    std::vector<double> leverage, attention;
  };

  void normalise_layer() {
    if (normalised_) return;
    std::vector<std::vector<double>*> leverage, attention;
    for (Head& h : heads_) {
      leverage.push_back(&h.leverage);
      attention.push_back(&h.attention);
    }
    normalise(leverage);
    normalise(attention);
    normalised_ = true;
  }

  LeverageScores leverage_;
  TileAttention attention_;
  PolicyContext context_;
  Budget budget_;
  std::optional<double> blend_;
  std::uint32_t sinks_;
  std::uint32_t recent_;
  std::vector<Head> heads_;
  bool normalised_ = false;
  std::vector<float> queries_, keys_, values_;
  std::vector<TokenPos> positions_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)blend_of(spec);
  (void)spec.count("sinks", kDefaultSinks);
  (void)spec.count("recent", kDefaultRecent);
  (void)LeverageScores::needs(spec);
  PolicyTraits t = prompt_scorer_traits(spec, TileAttention::needs(spec));
  t.scores_layer_first = t.undoes_rotation = true;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"blend", "compression | number", "compression",
     "weight of leverage beside attention; compression: the share of the tokens that goes"},
    {"sinks", "tokens", "8", "first tokens that stay before all others"},
    {"recent", "tokens", "4", "last tokens of the prompt that stay before all others"},
    kTileParam,
    kPadParam,
    kSketchParam,
    kKeyGroupParam,
};

// What always stays is tied at the top: age decides within it.
std::string advice(const PolicySpec& spec, std::uint32_t k) {
  const auto always = std::uint64_t{spec.count("sinks", kDefaultSinks)} + spec.count("recent", kDefaultRecent);
  if (k >= always) return {};
  return fmt::format("sinks and recent are {} tokens, so that a budget of {} keeps the youngest of them", always, k);
}

}  // namespace

std::unique_ptr<EvictionPolicy> make_compactor(const PolicySpec& spec, const PolicyContext& context,
                                               SketchSource source) {
  return std::make_unique<Compactor>(spec, context, std::move(source));
}

extern const PolicyInfo kCompactorPolicy;
constinit const PolicyInfo kCompactorPolicy = {
    .name = "compactor",
    .summary = "Keeps the tokens of the prompt with the largest blend of leverage and non-causal attention, each "
               "measured in standard deviations over the layer.",
    .source = "Compactor: Chari and Van Durme, 2025; as kvpress evicts, once after the prompt",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return make_compactor(spec, context, draw_sketch);
    },
    .advice = advice,
};

}  // namespace kvroof
