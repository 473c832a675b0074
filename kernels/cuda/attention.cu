#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace kvroof::cuda {
namespace {

using Kernel = void (*)(AttentionArguments);

template <Stored kType>
Kernel kernel_of_width(unsigned width) {
  switch (width) {
    case 64: return &decode_attention<kType, 64>;
    case 128: return &decode_attention<kType, 128>;
    default: return &decode_attention<kType, 256>;
  }
}

Kernel kernel_of(Stored cache, unsigned width) {
  switch (cache) {
    case Stored::kBF16: return kernel_of_width<Stored::kBF16>(width);
    case Stored::kF16: return kernel_of_width<Stored::kF16>(width);
    case Stored::kInt8: return kernel_of_width<Stored::kInt8>(width);
    default: return kernel_of_width<Stored::kInt4>(width);
  }
}

}  // namespace

void run_decode_attention(Stream& stream, Stored cache, const AttentionArguments& a) {
  if (a.value_row_bytes == 0) return run_latent_attention(stream, cache, LatentArguments{a});
  const unsigned width = padded_width(a.head_dim > a.value_dim ? a.head_dim : a.value_dim);
  launch(stream, kernel_of(cache, width), {runs_of(a)}, kAttentionThreads, a);
}

unsigned resident_attention_blocks(Stored cache, unsigned width) {
  if (width == kLatentValue) return resident_latent_blocks(cache);
  return resident_blocks(kernel_of(cache, width), kAttentionThreads);
}

}  // namespace kvroof::cuda
