#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/score.cuh"
#include "kernels/cuda/top_k.cuh"

namespace kvroof::cuda {
namespace {

// For each block of decode attention, whose number the caller says: these hold fewer registers, and more of them wait
// for memory at once.
constexpr unsigned kScoreBlocks = 2;

// Parts are as many as the longest row of the plan has; all heads of a sequence hold equally many tokens.
void score_last_row(Stream& stream, const ScoreArguments& a) {
  launch(stream, &last_row_scores, {a.most_parts, a.sequences}, kScoreThreads, a);
}

}  // namespace

void run_noisy_sums(Stream& stream, unsigned blocks, const ScoreArguments& a) {
  launch(stream, &noisy_sums, {kScoreBlocks * blocks}, kScoreThreads, a);
}

void run_update_scores(Stream& stream, unsigned blocks, const ScoreArguments& a) {
  if (a.kind == ScoreKind::kLastRow) return score_last_row(stream, a);
  launch(stream, &update_scores, {kScoreBlocks * blocks}, kScoreThreads, a);
}

void run_choose_lowest(Stream& stream, const ChooseArguments& a) {
  launch(stream, &choose_lowest, {a.heads}, kChooseThreads, a);
}

void run_observe_prompt(Stream& stream, const ScoreArguments& a) {
  if (a.kind == ScoreKind::kLastRow) return score_last_row(stream, a);
  const unsigned slots = a.first_query + a.queries;
  launch(stream, &observe_prompt, {(slots + kScoreThreads - 1) / kScoreThreads, a.storage_heads}, kScoreThreads, a);
}

}  // namespace kvroof::cuda
