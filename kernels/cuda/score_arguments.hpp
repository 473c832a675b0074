// What the kernels are given that keep a policy's scores beside the cache and choose by them.
#pragma once

#include "kernels/cuda/arguments.hpp"

namespace kvroof::cuda {

enum class ScoreKind : std::uint8_t { kAttentionSum, kNoisySum, kCounts, kLastRow };
enum class ScoreReduction : std::uint8_t { kSum, kMean, kMax };
enum class ScoreNoise : std::uint8_t { kNone, kPerToken, kPerQuery };

constexpr std::uint32_t kNoToken = 0xffffffffU;
// Blocks for each one of attention. A block meets units one after another, and of each it waits for memory several
// times over: more and smaller ones wait at the same time.
constexpr std::uint32_t kScoreBlocks = 2;
constexpr std::uint32_t kRowSlots = 256;  // of a block where a sequence has one set of slots (kLastRow)

// The slot that a split of a head would give up, or none.
struct Victim {
  std::uint64_t key = ~std::uint64_t{0};  // score in the order of unsigned numbers, then position: the least goes
  std::uint32_t slot = 0;
};

// How a policy's scores come of attention. Its state of each slot is columns of 4 bytes, as the policy objects keep
// them: column 0 is the score or the count; then, for one draw a token, the noise of each query head; or the words of
// the ring. Under kLastRow the first storage head has the score of all.
struct ScoreRule {
  ScoreKind kind = ScoreKind::kAttentionSum;
  ScoreReduction reduction = ScoreReduction::kSum;
  ScoreNoise noise = ScoreNoise::kNone;
  bool counts_low = true;
  std::uint32_t history = 1;
  std::uint32_t window = 0;  // 0: none
  std::uint32_t layer = 0;
  std::uint64_t seed = 0;
};

// The state after a row.
struct ScoreArguments : ScoreRule, KvSchedule {  // `rows` are given; of a prompt [queries]
  const std::uint32_t* query = nullptr;  // [sequences] position
  std::uint32_t passes = 1;              // units of a storage head
  std::uint32_t group = 1;               // query heads of a storage head
  std::uint32_t kernel_group = 1;        // unit_heads of attention: logits are [slots, kernel_group]
  std::uint32_t storage_heads = 1;
  std::uint32_t sequences = 1;
  const float* log_sums = nullptr;       // [units, kernel_group]
  float* noisy_max = nullptr;            // [units, most_splits, kernel_group] of the noisy softmax
  float* noisy_sum = nullptr;
  Victim* victims = nullptr;             // [units, most_splits]; of kLastRow [sequences, row_splits]
  std::uint32_t row_splits = 1;           // of kRowSlots each that the longest row has
  unsigned* finished = nullptr;          // [units]; 0 before and after
  std::uint32_t* evicted = nullptr;      // [sequences, storage heads]: position of the victim, or kNoToken
  // A prompt's: rows of `queries` consecutive tokens from `first_query` on.
  std::uint32_t first_query = 0;
  std::uint32_t queries = 0;
};

// Decode attention that keeps the scores of each unit as well.
struct ScoredAttentionArguments : AttentionArguments {
  ScoreArguments scores;
};

// Of each head the tokens whose scores are the lowest, of equals the oldest.
struct ChooseArguments : ScoreRule {
  const CacheSlots* slots = nullptr;   // [heads], with state
  std::uint32_t heads = 0;
  std::uint32_t length = 0;            // slots of each head that hold a token
  std::uint32_t first = 0, end = 0;    // positions of the tokens that may go
  std::uint32_t count = 1;             // that go, ≥ 1; all that may, where those are fewer
  std::uint32_t* chosen = nullptr;     // [heads, (length + 31) / 32]: bit s % 32 of word s / 32: slot s goes
};

// Rows that a count made of a whole prompt at once may look back on.
constexpr std::uint32_t kMostPromptHistory = 1024;

// The state after all rows of a prompt, of weights exp(logit − log-sum), or the same of noisy logits: their sums, or
// counts (of histories up to kMostPromptHistory, without a window).
struct PromptScoreArguments : ScoreRule {
  PromptArguments rows;  // as attention met them; the slots have room for the policy's state
  float temperature = 1;
  std::uint32_t sequence = 0;
  float* log_sums = nullptr;  // [heads, tokens]: attention's; or room for those of the noisy logits
};

}  // namespace kvroof::cuda
