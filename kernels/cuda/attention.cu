#include "kernels/cuda/attention_table.cuh"

namespace kvroof::cuda {

void run_decode_attention(Stream& stream, Stored cache, const AttentionArguments& a) {
  if (a.value_row_bytes == 0) return run_latent_attention(stream, cache, LatentArguments{a});
  launch_attention<false>(stream, cache, a);
}

unsigned resident_attention_blocks(Stored cache, unsigned width, bool scores) {
  if (width == kLatentValue) return resident_latent_blocks(cache);
  if (scores) return resident_scored_blocks(cache, width);
  return resident_blocks(attention_kernel_of<false>(cache, width), kAttentionThreads);
}

}  // namespace kvroof::cuda
