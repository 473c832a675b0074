// Scores and victims of heads that several blocks share, against sums in double precision.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/emulator.hpp"
#include "kernels/cuda/step_plan.hpp"
#include "tests/catch.hpp"

using namespace kvroof::cuda;

namespace {

constexpr std::uint32_t kNewest = 5000, kRecent = 10;
constexpr float kTemperature = 1.5F;

struct Case {
  ScoreKind kind = ScoreKind::kAttentionSum;
  std::uint32_t group = 1;
  unsigned blocks = 2;  // of attention
};

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
    next_.assign(lengths.size(), 0xdeadbeefU);
    evicted_.assign(lengths.size() + 1, 0xdeadbeefU);
    plan_ = plan();
    logits_.resize(plan_.logit_floats());
    for (float& x : logits_) x = normal(random);
  }

  void run() {
    plan_.place_logits(logits_.data());
    Stream stream;
    DeviceBuffer tables, parts, memory;
    const AttentionArguments attention = plan_.arguments(stream, tables, parts, 64);
    std::vector<StepRow> rows;
    for (std::uint32_t s = 0; s < lengths_.size(); ++s) {
      rows.push_back({lengths_[s], kOwnSlot, kRecent, 1, s, kTemperature, 0});
      for (std::uint32_t g = 0; g < case_.group; ++g) {
        attention.log_sums[s * case_.group + g] = static_cast<float>(log_sum(s, g));
      }
    }
    ScoreArguments a = score_arguments(plan_, attention, memory);
    most_parts = a.most_parts;
    std::vector<unsigned> finished(lengths_.size(), 0);
    a.kind = case_.kind;
    a.noise = case_.kind == ScoreKind::kNoisySum ? ScoreNoise::kPerToken : ScoreNoise::kNone;
    a.rows = rows.data();
    a.finished = finished.data();
    a.evicted = evicted_.data();
    if (case_.kind == ScoreKind::kNoisySum) run_noisy_sums(stream, a);
    run_update_scores(stream, a);
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
      CHECK(next_[s] == best);
      CHECK(evicted_[s] == (best == 0xdeadbeefU ? kNoToken : positions_[s][best]));
    }
    CHECK(evicted_.back() == 0xdeadbeefU);
  }

  std::uint32_t most_parts = 0;

 private:
  AttentionPlan plan() {
    AttentionPlan plan(1, case_.group, kMostGroup);
    for (std::uint32_t s = 0; s < lengths_.size(); ++s) {
      CacheSlots slots;
      slots.positions = positions_[s].data();
      slots.state = reinterpret_cast<std::uint32_t*>(states_[s].data());
      slots.stride = lengths_[s];
      slots.next = &next_[s];
      plan.add({&slots, 1}, kNewest, {&lengths_[s], 1});
    }
    plan.cut(case_.blocks, 64, 256);
    return plan;
  }
  [[nodiscard]] double logit(std::uint32_t s, std::uint32_t slot, std::uint32_t g) const {
    std::size_t at = slot;
    for (std::uint32_t before = 0; before < s; ++before) at += lengths_[before];
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
  std::vector<std::uint32_t> next_, evicted_;
  std::vector<float> logits_;
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
        CHECK(scored.most_parts == (blocks == 1 ? 2U : blocks == 2 ? 3U : 11U));
      }
    }
  }
}
