#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/score.cuh"
#include "kernels/cuda/top_k.cuh"

namespace kvroof::cuda {

void run_noisy_sums(Stream& stream, unsigned blocks, const ScoreArguments& a) {
  launch(stream, &noisy_sums, {blocks}, kScoreThreads, a);
}

void run_update_scores(Stream& stream, unsigned blocks, const ScoreArguments& a) {
  launch(stream, &update_scores, {blocks}, kScoreThreads, a);
}

void run_choose_lowest(Stream& stream, const ChooseArguments& a) {
  launch(stream, &choose_lowest, {a.heads}, kChooseThreads, a);
}

void run_observe_prompt(Stream& stream, const ScoreArguments& a) {
  const unsigned slots = a.first_query + a.queries;
  launch(stream, &observe_prompt, {(slots + kScoreThreads - 1) / kScoreThreads, a.storage_heads}, kScoreThreads, a);
}

}  // namespace kvroof::cuda
