#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prompt_scores.cuh"

namespace kvroof::cuda {
namespace {

template <Stored kType, unsigned kWidth>
void run_passes(Stream& stream, const PromptScoreArguments& s) {
  const PromptArguments& a = s.rows;
  if (s.kind == ScoreKind::kNoisySum) {
    launch(stream, &prompt_noisy_sums<kType, kWidth>, {(a.tokens + kQueries - 1) / kQueries, a.heads}, kPromptThreads,
           s);
  }
  launch(stream, &prompt_column_sums<kType, kWidth>, {(a.tokens + kKeys - 1) / kKeys, a.heads / a.group},
         kPromptThreads, s);
}

template <Stored kType>
void run_width(Stream& stream, const PromptScoreArguments& s) {
  switch (padded_width(s.rows.head_dim)) {
    case 64: return run_passes<kType, 64>(stream, s);
    case 128: return run_passes<kType, 128>(stream, s);
    default: return run_passes<kType, 256>(stream, s);
  }
}

}  // namespace

void run_draw_prompt_noise(Stream& stream, const PromptScoreArguments& s) {
  launch(stream, &draw_prompt_noise, {(s.rows.tokens + kPromptThreads - 1) / kPromptThreads, s.rows.heads},
         kPromptThreads, s);
}

void run_prompt_scores(Stream& stream, Stored cache, const PromptScoreArguments& s) {
  cache == Stored::kBF16 ? run_width<Stored::kBF16>(stream, s) : run_width<Stored::kF16>(stream, s);
}

}  // namespace kvroof::cuda
