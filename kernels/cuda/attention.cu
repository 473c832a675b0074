#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace kvroof::cuda {
namespace {

using Kernel = void (*)(AttentionArguments);

// A kernel and the bytes of its ring.
struct Chosen {
  Kernel kernel;
  unsigned ring;
};

template <Stored kType, unsigned kWidth>
Chosen kernel_for() {
  return {&decode_attention<kType, kWidth>, kRingBytes<kType, kWidth>};
}

template <Stored kType>
Chosen kernel_of_width(unsigned width) {
  switch (width) {
    case 64: return kernel_for<kType, 64>();
    case 128: return kernel_for<kType, 128>();
    default: return kernel_for<kType, 256>();
  }
}

Chosen kernel_of(Stored cache, unsigned width) {
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
  const Chosen chosen = kernel_of(cache, padded_width(a.head_dim > a.value_dim ? a.head_dim : a.value_dim));
  launch(stream, chosen.kernel, {runs_of(a)}, kAttentionThreads, a, chosen.ring);
}

unsigned resident_attention_blocks(Stored cache, unsigned width) {
  if (width == kLatentValue) return resident_latent_blocks(cache);
  const Chosen chosen = kernel_of(cache, width);
  return resident_blocks(chosen.kernel, kAttentionThreads, chosen.ring);
}

}  // namespace kvroof::cuda
