#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace kvroof::cuda {
namespace {

using Kernel = void (*)(AttentionArguments);

template <Stored kType, unsigned kWidth>
Kernel kernel_of_width(unsigned group) {
  switch (padded_group(group)) {
    case 1: return &decode_attention<kType, kWidth, 1>;
    case 2: return &decode_attention<kType, kWidth, 2>;
    case 4: return &decode_attention<kType, kWidth, 4>;
    default: return &decode_attention<kType, kWidth, 8>;
  }
}

template <Stored kType>
Kernel kernel_of_type(unsigned group, unsigned width) {
  switch (width) {
    case 64: return kernel_of_width<kType, 64>(group);
    case 128: return kernel_of_width<kType, 128>(group);
    default: return kernel_of_width<kType, 256>(group);
  }
}

Kernel kernel_of(Stored cache, unsigned group, unsigned width) {
  switch (cache) {
    case Stored::kBF16: return kernel_of_type<Stored::kBF16>(group, width);
    case Stored::kF16: return kernel_of_type<Stored::kF16>(group, width);
    case Stored::kInt8: return kernel_of_type<Stored::kInt8>(group, width);
    default: return kernel_of_type<Stored::kInt4>(group, width);
  }
}

}  // namespace

void run_decode_attention(Stream& stream, Stored cache, unsigned blocks, unsigned group, const AttentionArguments& a) {
  if (a.value_row_bytes == 0) return run_latent_attention(stream, cache, blocks, LatentArguments{a});
  const unsigned width = padded_width(a.head_dim > a.value_dim ? a.head_dim : a.value_dim);
  launch(stream, kernel_of(cache, group, width), {blocks}, kAttentionThreads, a);
}

unsigned resident_attention_blocks(Stored cache, unsigned group, unsigned width) {
  if (width == kLatentValue) return resident_latent_blocks(cache);
  return resident_blocks(kernel_of(cache, group, width), kAttentionThreads);
}

}  // namespace kvroof::cuda
