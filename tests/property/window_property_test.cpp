// Replays of layers with a sliding window, ALiBi and a soft-cap against a plain recomputation in double precision.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "sim/core/alibi.hpp"
#include "sim/attention/attention.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// How the attention of one layer differs from the plain one.
struct Rule {
  std::uint32_t window = 0;
  double softcap = 0;
  bool alibi = false;
};

using Kept = std::vector<std::uint32_t>;

struct Shown final : ReplayObserver {
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& s) override {
    Kept& to = sets[{s.point, s.layer.value, s.head, s.step.value}];
    for (const TokenPos p : s.positions) to.push_back(p.value);
  }
  void quality(const QualityValue& v) override {
    qualities[{v.point, v.layer.value, v.query_head, v.step.value}] = v.quality;
  }
  std::map<std::array<std::uint32_t, 4>, Kept> sets;
  std::map<std::array<std::uint32_t, 4>, HeadQuality> qualities;
};

// One layer of one KV head, as the definitions say.
class Plain {
 public:
  Plain(const Qkv& x, std::uint32_t layer, std::uint32_t kv_head, Rule rule)
      : x_(x), layer_(layer), group_(x.heads / x.kv_heads), first_head_(kv_head * group_), rule_(rule) {}

  [[nodiscard]] bool sees(std::uint32_t query, std::uint32_t key) const {
    return key <= query && (rule_.window == 0 || key + rule_.window > query);
  }
  // Unnormalised weight of a key.
  [[nodiscard]] double weight(std::uint32_t head, std::uint32_t query, std::uint32_t key) const {
    const auto q = x_.q_row(layer_, head, query);
    const auto k = x_.k_row(layer_, head, key);
    double logit = 0;
    for (std::size_t i = 0; i < q.size(); ++i) logit += static_cast<double>(q[i]) * static_cast<double>(k[i]);
    logit /= std::sqrt(static_cast<double>(x_.d));
    if (rule_.softcap > 0) logit = rule_.softcap * std::tanh(logit / rule_.softcap);
    if (rule_.alibi) logit -= static_cast<double>(alibi_slopes(x_.heads)[head]) * (query - key);
    return std::exp(logit);
  }
  // h2o with a budget of k, half of it recent: what is kept after the prompt and after each decoded token.
  [[nodiscard]] std::vector<Kept> h2o(std::uint32_t prompt, std::uint32_t k) const {
    std::map<std::uint32_t, double> held;
    std::vector<Kept> steps;
    for (std::uint32_t t = 0; t < x_.tokens; ++t) {
      std::erase_if(held, [&](const auto& token) { return !sees(t, token.first); });
      held[t] = 0;
      add_attention(held, t);
      if (t + 1 < prompt) continue;
      if (held.size() > k) std::erase_if(held, [&](const auto& token) { return !sees(t + 1, token.first); });
      while (held.size() > k) held.erase(lowest(held, t, k / 2));
      Kept kept;
      for (const auto& [position, score] : held) kept.push_back(position);
      steps.push_back(kept);
    }
    return steps;
  }
  // Attention that falls on `attended`, of all that the query sees.
  [[nodiscard]] double recall(std::uint32_t head, std::uint32_t query, const Kept& attended) const {
    double all = 0;
    double there = 0;
    for (std::uint32_t key = 0; key <= query; ++key) {
      if (sees(query, key)) all += weight(head, query, key);
    }
    for (const std::uint32_t key : attended) there += weight(head, query, key);
    return there / all;
  }

 private:
  void add_attention(std::map<std::uint32_t, double>& held, std::uint32_t query) const {
    for (std::uint32_t head = first_head_; head < first_head_ + group_; ++head) {
      double sum = 0;
      for (const auto& [key, score] : held) sum += weight(head, query, key);
      for (auto& [key, score] : held) score += weight(head, query, key) / sum;
    }
  }
  static std::uint32_t lowest(const std::map<std::uint32_t, double>& held, std::uint32_t newest, std::uint32_t recent) {
    std::uint32_t at = 0;
    double least = INFINITY;
    for (const auto& [position, score] : held) {
      if (position + recent > newest || score >= least) continue;
      least = score;
      at = position;
    }
    return at;
  }

  const Qkv& x_;
  std::uint32_t layer_, group_, first_head_;
  Rule rule_;
};

constexpr std::uint32_t kPrompt = 40;

Shown replay_of(const Qkv& x, const std::vector<Rule>& rules, const std::string& policies) {
  const TemporaryFolder folder;
  TraceOptions options;
  options.prompt = kPrompt;
  std::size_t layer = 0;
  options.edit_layer = [&](TraceLayer& l) {
    const Rule& rule = rules[layer++];
    l.window = rule.window;
    l.softcap = static_cast<float>(rule.softcap);
    if (rule.alibi) l.alibi_slopes = alibi_slopes(x.heads);
  };
  write_trace(folder.path() / "x.kvt", x, options);
  ThreadPool pool(2);
  Shown shown;
  ReplayOptions replay_options;
  replay_options.observer = &shown;
  (void)replay(TraceReader::open(folder.path() / "x.kvt"), parse_policies(policies), replay_options, pool);
  return shown;
}

// What a query attends to: what was kept before it, as far as it still sees it, and itself.
Kept attended(const Plain& plain, const Kept& before, std::uint32_t query) {
  Kept there = before;
  std::erase_if(there, [&](std::uint32_t p) { return !plain.sees(query, p); });
  there.push_back(query);
  return there;
}

}  // namespace

TEST_CASE("h2o and full attention over windows, soft-caps and ALiBi equal a plain recomputation, layer by layer") {
  Qkv shape;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.tokens = 90;
  shape.d = 16;
  const std::vector<Rule> rules = {{},          {12, 0, false}, {0, 2, true},  {12, 2, true},
                                   {30, 0, true}, {39, 1, false}, {40, 0, true}, {7, 0, false}};
  shape.layers = static_cast<std::uint32_t>(rules.size());
  const std::vector<std::uint32_t> budgets = {8, 20};
  const Qkv x = random_qkv(shape, 17, 1.3);
  const Shown shown = replay_of(x, rules, "full,h2o:budget=8,h2o:budget=20");
  for (std::uint32_t layer = 0; layer < x.layers; ++layer) {
    for (std::uint32_t kv_head = 0; kv_head < x.kv_heads; ++kv_head) {
      const Plain plain(x, layer, kv_head, rules[layer]);
      for (std::uint32_t point = 0; point < 3; ++point) {
        const auto expected = plain.h2o(kPrompt, point == 0 ? x.tokens : budgets[point - 1]);
        for (std::uint32_t step = 0; step < expected.size(); ++step) {
          INFO("layer " << layer << " head " << kv_head << " point " << point << " step " << step);
          REQUIRE(shown.sets.at({point, layer, kv_head, step}) == expected[step]);
          if (step == 0) continue;
          const std::uint32_t query = kPrompt + step - 1;
          const Kept there = attended(plain, expected[step - 1], query);
          for (const std::uint32_t head : {2 * kv_head, 2 * kv_head + 1}) {
            const HeadQuality& quality = shown.qualities.at({point, layer, head, step});
            CHECK(quality.recall == Approx(plain.recall(head, query, there)).margin(1e-6));
            if (point == 0) CHECK(quality.recall == 1);
            if (point == 0) CHECK(quality.output_error == 0);
          }
        }
      }
    }
  }
}
