#include "kernels/cuda/attention_table.cuh"

namespace kvroof::cuda {

void run_scored_attention(Stream& stream, Stored cache, const ScoredAttentionArguments& a) {
  launch_attention<true>(stream, cache, a);
}

}  // namespace kvroof::cuda
