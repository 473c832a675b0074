// Scores that are one row's weights over all heads of a layer, and the one victim, against plain loops.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/cuda/attention_plan.hpp"
#include "tests/catch.hpp"

using namespace kvroof::cuda;

namespace {

struct Case {
  std::uint32_t heads = 1;  // that store
  std::uint32_t group = 1;
  std::vector<std::uint32_t> lengths;  // of the sequences
  std::uint32_t recent = 0;
  bool equal = false;  // all logits
  bool evicts = true;
};

constexpr std::uint32_t kNewest = 5000;
constexpr std::uint32_t kPoison = 0xdeadbeefU;

// The tables of a step as a plan lays them out, with logits of our own.
class Step {
 public:
  Step(const Case& c, std::mt19937& random) : case_(c) {
    passes_ = (c.group + kMostGroup - 1) / kMostGroup;
    kernel_group_ = std::min(c.group, kMostGroup);
    std::normal_distribution<float> normal;
    for (std::uint32_t s = 0; s < c.lengths.size(); ++s) {
      std::vector<std::uint32_t>& tokens = positions_.emplace_back(c.lengths[s]);
      for (std::uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = kNewest + 1 - c.lengths[s] + i;
      std::shuffle(tokens.begin(), tokens.end(), random);
      states_.emplace_back(c.lengths[s] + 1, kPoison);
      rows_.push_back({c.lengths[s], kOwnSlot, c.recent, c.evicts ? 1U : 0U});
      row_parts_ = std::max(row_parts_, (c.lengths[s] + kRowSlots - 1) / kRowSlots);
      for (std::uint32_t u = 0; u < c.heads * passes_; ++u) {
        std::vector<float>& unit = logits_.emplace_back(std::size_t{c.lengths[s]} * kernel_group_,
                                                        std::numeric_limits<float>::quiet_NaN());
        const std::uint32_t heads = std::min(kMostGroup, c.group - u % passes_ * kMostGroup);
        for (std::size_t i = 0; i < unit.size(); ++i) {
          if (i % kernel_group_ < heads) unit[i] = c.equal ? 0.0F : normal(random);
        }
      }
    }
    query_.assign(c.lengths.size(), kNewest);
    next_.assign(c.lengths.size() * c.heads, kPoison);
    evicted_.assign(next_.size() + 1, kPoison);
    log_sums_.assign(logits_.size() * kernel_group_, 0.5F);
    finished_.assign(logits_.size(), 0);
    victims_.resize(c.lengths.size() * row_parts_);
  }

  void run() {
    std::vector<AttentionUnit> units;
    for (std::uint32_t u = 0; u < logits_.size(); ++u) {
      AttentionUnit& unit = units.emplace_back();
      unit.sequence = u / (case_.heads * passes_);
      unit.slots.positions = positions_[unit.sequence].data();
      unit.slots.logits = logits_[u].data();
      unit.slots.next = &next_[u / passes_];
      if (u % (case_.heads * passes_) < passes_) unit.slots.state = states_[unit.sequence].data();
    }
    ScoreArguments a;
    a.kind = ScoreKind::kLastRow;
    a.units = units.data();
    a.rows = rows_.data();
    a.query = query_.data();
    a.passes = passes_;
    a.group = case_.group;
    a.kernel_group = kernel_group_;
    a.storage_heads = case_.heads;
    a.sequences = static_cast<std::uint32_t>(rows_.size());
    a.log_sums = log_sums_.data();
    a.row_splits = row_parts_;
    a.victims = victims_.data();
    a.finished = finished_.data();
    a.evicted = evicted_.data();
    Stream stream;
    run_update_scores(stream, a);
  }

  void check() const {
    for (std::uint32_t s = 0; s < rows_.size(); ++s) {
      const std::vector<float> scores = scores_of(s);
      std::vector<std::tuple<float, std::uint32_t, std::uint32_t>> order;
      for (std::uint32_t slot = 0; slot < scores.size(); ++slot) {
        const std::uint32_t position = positions_[s][slot];
        if (case_.evicts && position + case_.recent <= kNewest) order.emplace_back(scores[slot], position, slot);
      }
      const bool chooses = !order.empty();
      const auto lowest = chooses ? *std::min_element(order.begin(), order.end()) : std::tuple(0.0F, kNoToken, kPoison);
      for (std::uint32_t h = 0; h < case_.heads; ++h) {
        CHECK(evicted_[s * case_.heads + h] == std::get<1>(lowest));
        CHECK(next_[s * case_.heads + h] == std::get<2>(lowest));
      }
    }
    CHECK(evicted_.back() == kPoison);
    CHECK(std::all_of(finished_.begin(), finished_.end(), [](unsigned n) { return n == 0; }));
  }

 private:
  // As the kernel left them, each the sum in double precision.
  [[nodiscard]] std::vector<float> scores_of(std::uint32_t s) const {
    std::vector<float> scores;
    for (std::uint32_t slot = 0; slot < case_.lengths[s]; ++slot) {
      double sum = 0;
      for (std::uint32_t h = 0; h < case_.heads; ++h) {
        for (std::uint32_t g = 0; g < case_.group; ++g) {
          const std::size_t unit = (s * case_.heads + h) * passes_ + g / kMostGroup;
          sum += std::exp(static_cast<double>(logits_[unit][slot * kernel_group_ + g % kMostGroup]) - 0.5);
        }
      }
      scores.push_back(std::bit_cast<float>(states_[s][slot]));
      CHECK(scores.back() == Approx(sum).epsilon(1e-5));
    }
    CHECK(states_[s].back() == kPoison);
    return scores;
  }

  Case case_;
  std::uint32_t passes_ = 1, kernel_group_ = 1, row_parts_ = 1;
  std::vector<std::vector<std::uint32_t>> positions_, states_;
  std::vector<std::vector<float>> logits_;  // of each unit
  std::vector<float> log_sums_;
  std::vector<StepRow> rows_;
  std::vector<std::uint32_t> query_, next_, evicted_;
  std::vector<unsigned> finished_;
  std::vector<Victim> victims_;
};

}  // namespace

TEST_CASE("one token goes from all heads of a layer, that of the least weight summed over them, whatever the shape") {
  std::mt19937 random(5);
  for (const Case& c : std::vector<Case>{{1, 1, {1}},
                                         {2, 2, {1, 2, kRowSlots - 1, kRowSlots, kRowSlots + 1}},
                                         {32, 1, {300, 40}},
                                         {3, 7, {129}, 5},
                                         {2, 20, {90, 257}},
                                         {1, 71, {200}, 1},
                                         {40, 1, {70}, 70},
                                         {2, 3, {1100, 300}, 5}}) {
    INFO(c.heads << " heads of " << c.group);
    Step step(c, random);
    step.run();
    step.check();
  }
}

TEST_CASE("of equal sums over a layer's heads the oldest token goes, in whatever slot it lies") {
  std::mt19937 random(6);
  Step step({4, 2, {200, 33}, 0, true}, random);
  step.run();
  step.check();
}

TEST_CASE("a sequence that is below its budget scores all heads of a layer and gives no token up") {
  std::mt19937 random(7);
  Step step({2, 3, {130}, 0, false, false}, random);
  step.run();
  step.check();
}
