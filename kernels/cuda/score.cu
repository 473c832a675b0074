#include "kernels/cuda/choose_token.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/score.cuh"
#include "kernels/cuda/top_k.cuh"

namespace kvroof::cuda {
namespace {

void score_last_row(Stream& stream, const ScoreArguments& a) {
  launch(stream, &last_row_scores, {a.row_splits, a.sequences}, kRowThreads, a);
}

}  // namespace

void run_noisy_sums(Stream& stream, const ScoreArguments& a) {
  launch(stream, &noisy_sums, {blocks_of(a)}, kScoreThreads, a);
}

void run_update_scores(Stream& stream, const ScoreArguments& a) {
  if (a.kind == ScoreKind::kLastRow) return score_last_row(stream, a);
  launch(stream, &update_scores, {blocks_of(a)}, kScoreThreads, a);
}

void run_choose_lowest(Stream& stream, const ChooseArguments& a) {
  launch(stream, &choose_lowest, {a.heads}, kChooseThreads, a);
}

void run_choose_token(Stream& stream, const TokenChoiceArguments& a) {
  launch(stream, &choose_token, {a.rows}, kChoiceThreads, a);
}

void run_observe_prompt(Stream& stream, const ScoreArguments& a) {
  if (a.kind == ScoreKind::kLastRow) return score_last_row(stream, a);
  const unsigned slots = a.first_query + a.queries;
  launch(stream, &observe_prompt, {(slots + kRowThreads - 1) / kRowThreads, a.storage_heads}, kRowThreads, a);
}

}  // namespace kvroof::cuda
