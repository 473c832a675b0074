#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "kernels/cuda/kernels.hpp"
#include "sim/core/dtype.hpp"
#include "sim/core/gumbel.hpp"
#include "tests/catch.hpp"
#include "tests/cuda_emulated/stored_rows.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

struct Case {
  std::uint32_t tokens = 1, storage_heads = 1, group = 1, head_dim = 64;
  ScoreKind kind = ScoreKind::kAttentionSum;
  ScoreReduction reduction = ScoreReduction::kSum;
  ScoreNoise noise = ScoreNoise::kNone;
  std::uint32_t window = 0;
  float softcap = 0;
  bool alibi = false;
  std::uint32_t history = 1;
  bool counts_low = true;
  Stored type = Stored::kF16;

  [[nodiscard]] std::uint32_t columns() const { return 1 + std::max(group, (history + 31) / 32); }
};

constexpr float kScale = 0.2F;
constexpr float kTemperature = 1.5F;
constexpr std::uint64_t kSeed = 11;
constexpr std::uint32_t kSequence = 3, kLayer = 2;

// Rows of numbers that f16 holds exactly.
std::vector<float> rows_of(std::size_t count, std::mt19937& random) {
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(static_cast<int>(random() % 129) - 64) / 32;
  return out;
}

class Prompt {
 public:
  explicit Prompt(const Case& c) : c_(c), random_(c.tokens + c.group) {
    q_ = rows_of(std::size_t{c.tokens} * heads() * c.head_dim, random_);
    if (c.type != Stored::kF16) {  // integers meet queries that no factor holds
      for (float& x : q_) x *= 0.33333F;
    }
    keys_ = stored_rows(c.type, std::size_t{c.storage_heads} * c.tokens, c.head_dim, random_);
    state_.assign(std::size_t{c.storage_heads} * c.columns() * c.tokens, 0x7fc00000U);
    out_.assign(std::size_t{c.tokens} * heads() * c.head_dim, NAN);
    log_sums_.assign(std::size_t{heads()} * c.tokens, NAN);
    for (std::uint32_t h = 0; h < heads(); ++h) slopes_.push_back(0.05F * static_cast<float>(h + 1));
    for (std::uint32_t s = 0; s < c.storage_heads; ++s) {
      CacheSlots slots;
      slots.keys = slots.values = keys_.bytes.data() + std::size_t{s} * c.tokens * keys_.row_bytes;
      if (!keys_.scales.empty()) slots.key_scales = slots.value_scales = keys_.scales.data() + s * c.tokens;
      slots.state = state_.data() + std::size_t{s} * c.columns() * c.tokens;
      slots.stride = c.tokens;
      slots_.push_back(slots);
    }
  }

  // The score of each token of each storage head.
  std::vector<float> run() {
    PromptScoreArguments s;
    PromptArguments& a = s.rows;
    a.q = q_.data();
    a.slots = slots_.data();
    a.key_row_bytes = a.value_row_bytes = keys_.row_bytes;
    a.tokens = c_.tokens;
    a.heads = heads();
    a.group = c_.group;
    a.head_dim = a.value_dim = c_.head_dim;
    a.scale = kScale;
    a.softcap = c_.softcap;
    a.window = s.window = c_.window;
    a.alibi = c_.alibi ? slopes_.data() : nullptr;
    a.log_sums = s.log_sums = log_sums_.data();
    a.out = out_.data();
    s.kind = c_.kind;
    s.reduction = c_.reduction;
    s.history = c_.history;
    s.counts_low = c_.counts_low;
    s.noise = c_.noise;
    s.temperature = kTemperature;
    s.sequence = kSequence;
    s.layer = kLayer;
    s.seed = kSeed;
    Stream stream;
    run_prompt_attention(stream, c_.type, a);
    if (c_.noise == ScoreNoise::kPerToken) run_draw_prompt_noise(stream, s);
    if (c_.kind == ScoreKind::kNoisySum) run_prompt_noisy_sums(stream, c_.type, s);
    run_prompt_column_sums(stream, c_.type, s);
    std::vector<float> scores;
    for (const CacheSlots& slots : slots_) {
      for (std::uint32_t j = 0; j < c_.tokens; ++j) scores.push_back(bits_float(slots.state[j]));
    }
    return scores;
  }

  // The same in double precision, a row after the other.
  [[nodiscard]] std::vector<double> expected() const {
    std::vector<double> scores(std::size_t{c_.storage_heads} * c_.tokens);
    for (std::uint32_t s = 0; s < c_.storage_heads; ++s) {
      for (std::uint32_t i = 0; i < c_.tokens; ++i) {
        const std::vector<double> reduced = reduced_row(s, i);
        for (std::uint32_t j = 0; j < c_.tokens; ++j) scores[std::size_t{s} * c_.tokens + j] += reduced[j];
      }
    }
    return scores;
  }

  // Tokens whose count or ring is not what their rows, one after the other, make it.
  [[nodiscard]] std::uint32_t wrong_counts() const {
    std::uint32_t wrong = 0;
    const std::uint32_t words = (c_.history + 31) / 32;
    for (std::uint32_t s = 0; s < c_.storage_heads; ++s) {
      std::vector<std::vector<std::uint32_t>> rings(c_.tokens, std::vector<std::uint32_t>(words, 0));
      for (std::uint32_t i = 0; i < c_.tokens; ++i) {
        const std::vector<double> reduced = reduced_row(s, i);
        const std::uint32_t bit = i % c_.history;
        for (std::uint32_t j = 0; j <= i; ++j) {
          const bool hit = c_.counts_low ? reduced[j] < 1.0 / (i + 1) : reduced[j] > 1.0 / (i + 1);
          rings[j][bit / 32] = (rings[j][bit / 32] & ~(1U << bit % 32)) | static_cast<std::uint32_t>(hit) << bit % 32;
        }
      }
      for (std::uint32_t j = 0; j < c_.tokens; ++j) {
        std::uint32_t count = 0;
        bool right = true;
        for (std::uint32_t w = 0; w < words; ++w) {
          count += static_cast<std::uint32_t>(std::popcount(rings[j][w]));
          right = right && slots_[s].state[(1 + w) * c_.tokens + j] == rings[j][w];
        }
        wrong += right && slots_[s].state[j] == count ? 0 : 1;
      }
    }
    return wrong;
  }

 private:
  // The weights of a row, reduced over the group.
  [[nodiscard]] std::vector<double> reduced_row(std::uint32_t storage, std::uint32_t i) const {
    std::vector<double> reduced(c_.tokens);
    for (std::uint32_t g = 0; g < c_.group; ++g) {
      const std::vector<double> weights = row(storage, storage * c_.group + g, i);
      for (std::uint32_t j = 0; j < c_.tokens; ++j) {
        const bool max = c_.reduction == ScoreReduction::kMax;
        reduced[j] = max ? std::max(reduced[j], weights[j]) : reduced[j] + weights[j];
      }
    }
    const double share = c_.reduction == ScoreReduction::kMean ? 1.0 / c_.group : 1.0;
    for (double& weight : reduced) weight *= share;
    return reduced;
  }
  [[nodiscard]] std::uint32_t heads() const { return c_.storage_heads * c_.group; }
  [[nodiscard]] std::vector<double> row(std::uint32_t storage, std::uint32_t head, std::uint32_t i) const {
    std::vector<double> weights(c_.tokens);
    double total = 0;
    const std::uint32_t first = c_.window > 0 && i + 1 > c_.window ? i + 1 - c_.window : 0;
    for (std::uint32_t j = first; j <= i; ++j) {
      double x = 0;
      for (std::uint32_t d = 0; d < c_.head_dim; ++d) {
        x += static_cast<double>(q_[(std::size_t{i} * heads() + head) * c_.head_dim + d]) *
             static_cast<double>(keys_.values[(std::size_t{storage} * c_.tokens + j) * c_.head_dim + d]);
      }
      x *= static_cast<double>(kScale);
      if (c_.softcap > 0) x = static_cast<double>(c_.softcap) * std::tanh(x / static_cast<double>(c_.softcap));
      if (c_.alibi) x -= static_cast<double>(slopes_[head]) * (i - j);
      NoiseKey key{kSeed, kSequence, kLayer, head, j};
      if (c_.noise == ScoreNoise::kPerQuery) key.query_position = i;
      if (c_.noise != ScoreNoise::kNone) x += static_cast<double>(gumbel_draw(key));
      if (c_.kind == ScoreKind::kNoisySum) x /= static_cast<double>(kTemperature);
      weights[j] = std::exp(x);
      total += weights[j];
    }
    for (double& w : weights) w /= total;
    return weights;
  }

  Case c_;
  std::mt19937 random_;
  std::vector<float> q_, out_, log_sums_, slopes_;
  StoredRows keys_;
  std::vector<std::uint32_t> state_;
  std::vector<CacheSlots> slots_;
};

void check(const Case& c) {
  INFO(c.tokens << " tokens, " << c.storage_heads << " heads of " << c.group << ", noise " << static_cast<int>(c.noise)
                << ", reduction " << static_cast<int>(c.reduction) << ", window " << c.window);
  Prompt prompt(c);
  const std::vector<float> got = prompt.run();
  const std::vector<double> expected = prompt.expected();
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    REQUIRE(std::isfinite(got[i]));
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]) / std::max(1e-3, expected[i]));
  }
  CHECK(worst <= 2e-4);
}

}  // namespace

TEST_CASE("the sums of a prompt's columns equal those of its rows in double precision, at every edge of a tile") {
  for (const std::uint32_t tokens : {1U, 31U, 33U, 64U, 129U}) check({tokens, 2, 2, 64});
  check({40, 1, 3, 80, ScoreKind::kAttentionSum, ScoreReduction::kMean});
  check({40, 1, 4, 128, ScoreKind::kAttentionSum, ScoreReduction::kMax});
  check({40, 2, 1, 256});
}

TEST_CASE("int8 and int4 keys of a prompt have the columns of their rows, however fine the queries are") {
  for (const Stored type : {Stored::kInt8, Stored::kInt4}) {
    check({.tokens = 65, .storage_heads = 2, .group = 2, .head_dim = 64, .type = type});
    check({.tokens = 40, .group = 3, .head_dim = 80, .type = type});
    check({.tokens = 70, .group = 2, .head_dim = 128, .kind = ScoreKind::kNoisySum, .noise = ScoreNoise::kPerToken,
           .type = type});
  }
}

TEST_CASE("soft-cap, ALiBi and window act on the columns of a prompt as on its rows") {
  check({97, 1, 2, 64, ScoreKind::kAttentionSum, ScoreReduction::kSum, ScoreNoise::kNone, 20, 3.0F, true});
  check({97, 1, 2, 64, ScoreKind::kNoisySum, ScoreReduction::kSum, ScoreNoise::kPerToken, 20, 0, true});
}

// Which weights are below their row's share lies far enough from the threshold for single precision.
TEST_CASE("counts of a prompt's weights look back on so many rows, and the ring remembers which") {
  const auto check_counts = [](std::uint32_t tokens, std::uint32_t group, std::uint32_t history, bool low,
                               ScoreReduction reduction) {
    INFO(tokens << " tokens, history " << history << ", low " << low);
    Prompt prompt({.tokens = tokens, .storage_heads = 2, .group = group, .kind = ScoreKind::kCounts,
                   .reduction = reduction, .history = history, .counts_low = low});
    prompt.run();
    CHECK(prompt.wrong_counts() == 0);
  };
  check_counts(70, 2, 1, true, ScoreReduction::kSum);
  check_counts(70, 1, 30, false, ScoreReduction::kSum);
  check_counts(101, 2, 64, true, ScoreReduction::kMean);
  check_counts(70, 2, 33, false, ScoreReduction::kMax);
  check_counts(33, 1, 400, true, ScoreReduction::kSum);
}

TEST_CASE("a prompt's noisy softmax has a draw for each token, or for each query and token, and a temperature") {
  for (const ScoreNoise noise : {ScoreNoise::kNone, ScoreNoise::kPerToken, ScoreNoise::kPerQuery}) {
    for (const ScoreReduction reduction : {ScoreReduction::kSum, ScoreReduction::kMean, ScoreReduction::kMax}) {
      check({70, 2, 2, 64, ScoreKind::kNoisySum, reduction, noise});
    }
  }
}
