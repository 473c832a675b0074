#include "kernels/cuda/latent.cuh"
#include "kernels/cuda/launch.cuh"

namespace kvroof::cuda {

void run_latent_attention(Stream& stream, Stored cache, unsigned blocks, const LatentArguments& a) {
  switch (cache) {
    case Stored::kBF16: return launch(stream, &latent_attention<Stored::kBF16>, {blocks}, kAttentionThreads, a);
    case Stored::kF16: return launch(stream, &latent_attention<Stored::kF16>, {blocks}, kAttentionThreads, a);
    case Stored::kInt8: return launch(stream, &latent_attention<Stored::kInt8>, {blocks}, kAttentionThreads, a);
    default: return launch(stream, &latent_attention<Stored::kInt4>, {blocks}, kAttentionThreads, a);
  }
}

}  // namespace kvroof::cuda
