// Scores and victims of heads that several blocks share, against sums in double precision.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/emulator.hpp"
#include "kernels/cuda/step_plan.hpp"
#include "sim/core/gumbel.hpp"
#include "tests/catch.hpp"

using namespace kvroof::cuda;

namespace {

constexpr std::uint32_t kNewest = 5000, kRecent = 10;
constexpr float kTemperature = 1.5F;

struct Case {
  ScoreKind kind = ScoreKind::kAttentionSum;
  std::uint32_t group = 1;
  unsigned blocks = 2;  // of attention
  bool together = false;  // attention keeps the scores
};
constexpr std::uint32_t kDim = 64;

// A sequence of one storage head for each of the lengths.
class Scored {
 public:
  Scored(const Case& c, const std::vector<std::uint32_t>& lengths) : case_(c), lengths_(lengths) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 2);
    for (const std::uint32_t length : lengths) {
      std::vector<std::uint32_t>& positions = positions_.emplace_back(length);
      std::iota(positions.begin(), positions.end(), kNewest + 1 - length);
      std::shuffle(positions.begin(), positions.end(), random);
      std::vector<float>& state = states_.emplace_back(std::size_t{1 + c.group} * length);
      for (float& x : state) x = std::abs(normal(random));
    }
    before_ = states_;
    for (std::uint32_t s = 0; s < lengths.size(); ++s) {
      next_.push_back(s % 2 == 0 ? slot_of(s, kNewest) : 0xdeadbeefU);
      rows_.push_back({lengths[s], s % 2 == 0 ? kOwnSlot : slot_of(s, kNewest), kRecent, 1, s, kTemperature, 0});
    }
    next_before_ = next_;
    evicted_.assign(lengths.size() + 1, 0xdeadbeefU);
    plan_ = plan();
    logits_.resize(plan_.logit_floats());
    for (float& x : logits_) x = normal(random);
    for (std::uint16_t& x : cached_) x = bf16_of(normal(random));
    q_.resize(lengths.size() * c.group * kDim);
    for (float& x : q_) x = normal(random);
    out_.resize(q_.size());
  }

  void run() {
    plan_.place_logits(logits_.data());
    Stream stream;
    DeviceBuffer tables, splits, memory;
    const AttentionArguments attention = attention_of(plan_.arguments(stream, tables, splits, kDim));
    for (std::uint32_t s = 0; s < lengths_.size(); ++s) {
      for (std::uint32_t g = 0; g < case_.group; ++g) {
        attention.log_sums[s * case_.group + g] = static_cast<float>(log_sum(s, g));
      }
    }
    ScoreArguments a = score_arguments(plan_, attention, memory);
    most_splits = case_.together ? attention.most_splits : a.most_splits;
    std::vector<unsigned> finished(lengths_.size(), 0);
    a.kind = case_.kind;
    a.noise = case_.kind == ScoreKind::kNoisySum ? ScoreNoise::kPerToken : ScoreNoise::kNone;
    a.rows = rows_.data();
    a.finished = finished.data();
    a.evicted = evicted_.data();
    if (case_.together) {
      run_scored_attention(stream, Stored::kBF16, ScoredAttentionArguments{attention, a});
      check_output(stream, attention);
    } else {
      if (case_.kind == ScoreKind::kNoisySum) run_noisy_sums(stream, a);
      run_update_scores(stream, a);
    }
    synchronize(stream);
    CHECK(std::all_of(finished.begin(), finished.end(), [](unsigned n) { return n == 0; }));
  }

  void check() const {
    for (std::uint32_t s = 0; s < lengths_.size(); ++s) {
      CAPTURE(s, lengths_[s]);
      double worst = 0;
      std::uint32_t best = 0xdeadbeefU;  // slot
      for (std::uint32_t slot = 0; slot < lengths_[s]; ++slot) {
        const bool is_new = positions_[s][slot] == kNewest;
        const double expected = (is_new ? 0 : before_[s][slot]) + weight(s, slot);
        worst = std::max(worst, std::abs(states_[s][slot] - expected));
        const bool may_go = positions_[s][slot] + kRecent <= kNewest;
        if (may_go && (best == 0xdeadbeefU || states_[s][slot] < states_[s][best])) best = slot;
      }
      CHECK(worst < 2e-5);
      CHECK(keeps_noise(s));
      CHECK(next_[s] == (best == 0xdeadbeefU ? next_before_[s] : best));
      CHECK(evicted_[s] == (best == 0xdeadbeefU ? kNoToken : positions_[s][best]));
    }
    CHECK(evicted_.back() == 0xdeadbeefU);
  }

  std::uint32_t most_splits = 0;

 private:
  AttentionPlan plan() {
    AttentionPlan plan(1, case_.group, kMostGroup);
    for (std::uint32_t s = 0; s < lengths_.size(); ++s) {
      CacheSlots slots;
      slots.keys = reinterpret_cast<std::byte*>(cached_.data());
      slots.values = slots.keys + cached_.size();
      slots.positions = positions_[s].data();
      slots.state = reinterpret_cast<std::uint32_t*>(states_[s].data());
      slots.stride = lengths_[s];
      slots.next = &next_[s];
      const std::uint32_t length = planned(s);
      plan.add({&slots, 1}, kNewest, {&length, 1});
    }
    plan.cut(case_.blocks, kDim, 256);
    return plan;
  }
  // Units are as long as the rows to come: splits of some lie beyond their rows.
  [[nodiscard]] std::uint32_t planned(std::uint32_t s) const { return lengths_[s] + (s % 3 == 1 ? 70 : 0); }
  static std::uint16_t bf16_of(float x) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16); }
  // The newest token's was drawn, all others are what they were.
  [[nodiscard]] bool keeps_noise(std::uint32_t s) const {
    std::vector<float> expected = before_[s];
    std::copy_n(states_[s].begin(), lengths_[s], expected.begin());
    for (std::uint32_t g = 0; g < case_.group && case_.kind == ScoreKind::kNoisySum; ++g) {
      expected[std::size_t{1 + g} * lengths_[s] + slot_of(s, kNewest)] =
          kvroof::gumbel_draw({.sequence = s, .query_head = g, .position = kNewest});
    }
    return states_[s] == expected;
  }
  // All sequences read the same keys, and the same values behind them.
  [[nodiscard]] AttentionArguments attention_of(AttentionArguments a) {
    a.rows = rows_.data();
    a.key_row_bytes = a.value_row_bytes = 2 * kDim;
    a.q = q_.data();
    a.heads = case_.group;
    a.head_dim = a.value_dim = kDim;
    a.scale = 0.1F;
    a.out = out_.data();
    return a;
  }
  // Scores beside it change nothing of attention's output.
  void check_output(Stream& stream, const AttentionArguments& attention) {
    synchronize(stream);
    const std::vector<float> together = out_, logits = logits_;
    run_decode_attention(stream, Stored::kBF16, attention);
    synchronize(stream);
    CHECK(together == out_);
    CHECK(logits == logits_);
  }
  [[nodiscard]] std::uint32_t slot_of(std::uint32_t s, std::uint32_t position) const {
    const auto& all = positions_[s];
    return static_cast<std::uint32_t>(std::find(all.begin(), all.end(), position) - all.begin());
  }
  [[nodiscard]] double logit(std::uint32_t s, std::uint32_t slot, std::uint32_t g) const {
    std::size_t at = slot;
    for (std::uint32_t before = 0; before < s; ++before) at += planned(before);
    return logits_[at * case_.group + g];
  }
  // As the policy looks at it; the newest token's noise is drawn by the row itself, and kept.
  [[nodiscard]] double seen(std::uint32_t s, std::uint32_t slot, std::uint32_t g) const {
    if (case_.kind != ScoreKind::kNoisySum) return logit(s, slot, g);
    return (logit(s, slot, g) + states_[s][std::size_t{1 + g} * lengths_[s] + slot]) / kTemperature;
  }
  [[nodiscard]] double sum_of(std::uint32_t s, std::uint32_t g, bool noisy) const {
    double sum = 0;
    for (std::uint32_t i = 0; i < lengths_[s]; ++i) sum += std::exp(noisy ? seen(s, i, g) : logit(s, i, g));
    return sum;
  }
  [[nodiscard]] double log_sum(std::uint32_t s, std::uint32_t g) const { return std::log(sum_of(s, g, false)); }
  [[nodiscard]] double weight(std::uint32_t s, std::uint32_t slot) const {
    double sum = 0;
    for (std::uint32_t g = 0; g < case_.group; ++g) sum += std::exp(seen(s, slot, g)) / sums(s)[g];
    return sum;
  }
  [[nodiscard]] const std::vector<double>& sums(std::uint32_t s) const {
    std::vector<double>& of = sums_[s];
    for (std::uint32_t g = static_cast<std::uint32_t>(of.size()); g < case_.group; ++g) {
      of.push_back(sum_of(s, g, true));
    }
    return of;
  }

  Case case_;
  std::vector<std::uint32_t> lengths_;
  std::vector<std::vector<std::uint32_t>> positions_;
  std::vector<std::vector<float>> states_, before_;
  std::vector<std::uint32_t> next_, next_before_, evicted_;
  std::vector<StepRow> rows_;
  std::vector<float> logits_, q_, out_;
  std::vector<std::uint16_t> cached_ = std::vector<std::uint16_t>(std::size_t{2} * 800 * kDim);
  AttentionPlan plan_{1, 1};
  mutable std::vector<std::vector<double>> sums_ = std::vector<std::vector<double>>(16);
};

}  // namespace

TEST_CASE("scores and victims of heads of all lengths are those of plain sums, whatever blocks share them") {
  const std::vector<std::uint32_t> lengths = {1, 513, 63, 64, 65, 700, 12, 200};
  for (const ScoreKind kind : {ScoreKind::kAttentionSum, ScoreKind::kNoisySum}) {
    for (const std::uint32_t group : {1U, 3U}) {
      for (const unsigned blocks : {1U, 2U, 30U}) {
        CAPTURE(static_cast<int>(kind), group, blocks);
        Scored scored({kind, group, blocks}, lengths);
        scored.run();
        scored.check();
        CHECK(scored.most_splits > 1);
      }
    }
  }
}

TEST_CASE("the block that ends a unit's attention keeps its scores: those of plain sums of the logits it made") {
  const std::vector<std::uint32_t> lengths = {1, 513, 63, 64, 65, 700, 12, 200};
  for (const ScoreKind kind : {ScoreKind::kAttentionSum, ScoreKind::kNoisySum}) {
    for (const std::uint32_t group : {1U, 3U, 8U}) {
      for (const unsigned blocks : {1U, 2U, 30U}) {
        CAPTURE(static_cast<int>(kind), group, blocks);
        Scored scored({kind, group, blocks, true}, lengths);
        scored.run();
        scored.check();
        CHECK((scored.most_splits > 1) == (blocks > 1));
      }
    }
  }
}
