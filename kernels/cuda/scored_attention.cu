#include "kernels/cuda/attention_table.cuh"

namespace kvroof::cuda {

void run_scored_attention(Stream& stream, Stored cache, const ScoredAttentionArguments& a) {
  launch_attention<true>(stream, cache, a);
}

unsigned resident_scored_blocks(Stored cache, unsigned width) {
  return resident_blocks(attention_kernel_of<true>(cache, width), kAttentionThreads);
}

}  // namespace kvroof::cuda
