#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prepare.cuh"
#include "kernels/cuda/prompt_attention.cuh"

namespace kvroof::cuda {
namespace {

template <Stored kType>
void run_prompt(Stream& stream, const PromptArguments& a) {
  const Grid grid = {(a.tokens + kQueries - 1) / kQueries, a.heads};
  switch (padded_width(a.head_dim > a.value_dim ? a.head_dim : a.value_dim)) {
    case 64: return launch(stream, &prompt_attention<kType, 64>, grid, kPromptThreads, a);
    case 128: return launch(stream, &prompt_attention<kType, 128>, grid, kPromptThreads, a);
    default: break;
  }
  if constexpr (kBits<kType> == 16) {  // of integers: kMostQuantisedPrompt
    launch(stream, &prompt_attention<kType, 256>, grid, kPromptThreads, a);
  }
}

template <Stored kWeights>
void run_prepare_as(Stream& stream, Stored cache, const PrepareArguments& a) {
  const Grid grid = {a.tokens, 3};
  switch (cache) {
    case Stored::kBF16: return launch(stream, &prepare_heads<kWeights, Stored::kBF16>, grid, kPrepareThreads, a);
    case Stored::kF16: return launch(stream, &prepare_heads<kWeights, Stored::kF16>, grid, kPrepareThreads, a);
    case Stored::kInt8: return launch(stream, &prepare_heads<kWeights, Stored::kInt8>, grid, kPrepareThreads, a);
    case Stored::kInt4: return launch(stream, &prepare_heads<kWeights, Stored::kInt4>, grid, kPrepareThreads, a);
  }
}

// A block makes a token's output for kLatentHeads heads.
void run_latent_prompt(Stream& stream, Stored cache, const PromptArguments& a) {
  LatentArguments latent;
  latent.key_row_bytes = a.key_row_bytes;
  latent.q = a.q;
  latent.heads = a.heads;
  latent.head_dim = a.head_dim;
  latent.value_dim = a.value_dim;
  latent.scale = a.scale;
  latent.softcap = a.softcap;
  latent.window = a.window;
  latent.alibi = a.alibi;
  latent.log_sums = a.log_sums;
  latent.out = a.out;
  latent.prompt = a.slots;
  latent.tokens = a.tokens;
  latent.group = a.group;
  run_latent_attention(stream, cache, latent);
}

}  // namespace

void run_prompt_attention(Stream& stream, Stored cache, const PromptArguments& a) {
  if (a.value_row_bytes == 0) return run_latent_prompt(stream, cache, a);
  switch (cache) {
    case Stored::kBF16: return run_prompt<Stored::kBF16>(stream, a);
    case Stored::kF16: return run_prompt<Stored::kF16>(stream, a);
    case Stored::kInt8: return run_prompt<Stored::kInt8>(stream, a);
    case Stored::kInt4: return run_prompt<Stored::kInt4>(stream, a);
  }
}

void run_prepare(Stream& stream, Stored weights, Stored cache, const PrepareArguments& a) {
  weights == Stored::kBF16 ? run_prepare_as<Stored::kBF16>(stream, cache, a)
                           : run_prepare_as<Stored::kF16>(stream, cache, a);
}

void run_cos_sin(Stream& stream, const RotaryArguments& a) {
  launch(stream, &make_cos_sin, {(a.tokens * a.pairs + kRowThreads - 1) / kRowThreads}, kRowThreads, a);
}

void run_embed(Stream& stream, Stored weights, const EmbedArguments& a) {
  launch(stream, weights == Stored::kBF16 ? &embed_rows<Stored::kBF16> : &embed_rows<Stored::kF16>, {a.tokens},
         kRowThreads, a);
}

void run_fill(Stream& stream, Stored type, const FillArguments& a) {
  const std::uint64_t blocks = (a.count + 8 * kRowThreads - 1) / (8 * kRowThreads);
  launch(stream, type == Stored::kBF16 ? &fill_random<Stored::kBF16> : &fill_random<Stored::kF16>,
         {static_cast<unsigned>(blocks)}, kRowThreads, a);
}

void run_norm(Stream& stream, Stored weights, const NormArguments& a) {
  launch(stream, weights == Stored::kBF16 ? &norm_rows<Stored::kBF16> : &norm_rows<Stored::kF16>, {a.rows},
         kRowThreads, a);
}

void run_moves(Stream& stream, const MoveArguments& a) {
  constexpr unsigned kMoves = kRowThreads / 32;
  launch(stream, &move_rows, {(a.moves + kMoves - 1) / kMoves}, kRowThreads, a);
}

}  // namespace kvroof::cuda
