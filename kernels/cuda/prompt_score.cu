#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prompt_scores.cuh"

namespace kvroof::cuda {
namespace {

template <Stored kType>
void run_sums(Stream& stream, const PromptScoreArguments& s) {
  const Grid grid = {(s.rows.tokens + kQueries - 1) / kQueries, s.rows.heads};
  switch (padded_width(s.rows.head_dim)) {
    case 64: return launch(stream, &prompt_noisy_sums<kType, 64>, grid, kPromptThreads, s);
    case 128: return launch(stream, &prompt_noisy_sums<kType, 128>, grid, kPromptThreads, s);
    default: break;
  }
  if constexpr (kBits<kType> == 16) {  // of integers: kMostQuantisedPrompt
    if (s.rows.head_dim > 256) return launch(stream, &prompt_noisy_sums<kType, kLatentWidth>, grid, kPromptThreads, s);
    launch(stream, &prompt_noisy_sums<kType, 256>, grid, kPromptThreads, s);
  }
}

template <Stored kType>
void run_columns(Stream& stream, const PromptScoreArguments& s) {
  const Grid grid = {(s.rows.tokens + kKeys - 1) / kKeys, s.rows.heads / s.rows.group};
  switch (padded_width(s.rows.head_dim)) {
    case 64: return launch(stream, &prompt_column_sums<kType, 64>, grid, kPromptThreads, s);
    case 128: return launch(stream, &prompt_column_sums<kType, 128>, grid, kPromptThreads, s);
    default: break;
  }
  if constexpr (kBits<kType> == 16) {  // of integers: kMostQuantisedPrompt
    if (s.rows.head_dim > 256) return launch(stream, &prompt_column_sums<kType, kLatentWidth>, grid, kPromptThreads, s);
    launch(stream, &prompt_column_sums<kType, 256>, grid, kPromptThreads, s);
  }
}

}  // namespace

void run_draw_prompt_noise(Stream& stream, const PromptScoreArguments& s) {
  launch(stream, &draw_prompt_noise, {(s.rows.tokens + kPromptThreads - 1) / kPromptThreads, s.rows.heads},
         kPromptThreads, s);
}

void run_prompt_noisy_sums(Stream& stream, Stored cache, const PromptScoreArguments& s) {
  switch (cache) {
    case Stored::kBF16: return run_sums<Stored::kBF16>(stream, s);
    case Stored::kF16: return run_sums<Stored::kF16>(stream, s);
    case Stored::kInt8: return run_sums<Stored::kInt8>(stream, s);
    case Stored::kInt4: return run_sums<Stored::kInt4>(stream, s);
  }
}

void run_prompt_column_sums(Stream& stream, Stored cache, const PromptScoreArguments& s) {
  switch (cache) {
    case Stored::kBF16: return run_columns<Stored::kBF16>(stream, s);
    case Stored::kF16: return run_columns<Stored::kF16>(stream, s);
    case Stored::kInt8: return run_columns<Stored::kInt8>(stream, s);
    case Stored::kInt4: return run_columns<Stored::kInt4>(stream, s);
  }
}

}  // namespace kvroof::cuda
