#include "kernels/cuda/latent.cuh"
#include "kernels/cuda/launch.cuh"

namespace kvroof::cuda {
namespace {

using Kernel = void (*)(LatentArguments);

Kernel kernel_of(Stored cache) {
  switch (cache) {
    case Stored::kBF16: return &latent_attention<Stored::kBF16>;
    case Stored::kF16: return &latent_attention<Stored::kF16>;
    case Stored::kInt8: return &latent_attention<Stored::kInt8>;
    case Stored::kInt4: break;
  }
  return &latent_attention<Stored::kInt4>;
}

}  // namespace

void run_latent_attention(Stream& stream, Stored cache, const LatentArguments& a) {
  const unsigned passes = (a.group + kLatentHeads - 1) / kLatentHeads;
  const unsigned blocks = a.prompt != nullptr ? a.tokens * (a.heads / a.group) * passes : blocks_of(a);
  launch(stream, kernel_of(cache), {blocks}, kAttentionThreads, a);
}

unsigned resident_latent_blocks(Stored cache) { return resident_blocks(kernel_of(cache), kAttentionThreads); }

}  // namespace kvroof::cuda
