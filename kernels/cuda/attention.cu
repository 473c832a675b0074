#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace kvroof::cuda {
namespace {

template <Stored kType, unsigned kWidth>
void run_width(Stream& stream, unsigned blocks, unsigned group, const AttentionArguments& a) {
  switch (padded_group(group)) {
    case 1: return launch(stream, &decode_attention<kType, kWidth, 1>, {blocks}, kAttentionThreads, a);
    case 2: return launch(stream, &decode_attention<kType, kWidth, 2>, {blocks}, kAttentionThreads, a);
    case 4: return launch(stream, &decode_attention<kType, kWidth, 4>, {blocks}, kAttentionThreads, a);
    default: return launch(stream, &decode_attention<kType, kWidth, 8>, {blocks}, kAttentionThreads, a);
  }
}

template <Stored kType>
void run_type(Stream& stream, unsigned blocks, unsigned group, const AttentionArguments& a) {
  switch (padded_width(a.head_dim > a.value_dim ? a.head_dim : a.value_dim)) {
    case 64: return run_width<kType, 64>(stream, blocks, group, a);
    case 128: return run_width<kType, 128>(stream, blocks, group, a);
    default: return run_width<kType, 256>(stream, blocks, group, a);
  }
}

}  // namespace

void run_decode_attention(Stream& stream, Stored cache, unsigned blocks, unsigned group, const AttentionArguments& a) {
  if (a.value_row_bytes == 0) return run_latent_attention(stream, cache, blocks, LatentArguments{a});
  switch (cache) {
    case Stored::kBF16: return run_type<Stored::kBF16>(stream, blocks, group, a);
    case Stored::kF16: return run_type<Stored::kF16>(stream, blocks, group, a);
    case Stored::kInt8: return run_type<Stored::kInt8>(stream, blocks, group, a);
    default: return run_type<Stored::kInt4>(stream, blocks, group, a);
  }
}

}  // namespace kvroof::cuda
