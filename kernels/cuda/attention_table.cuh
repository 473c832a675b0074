// Which kernel of decode attention serves a type and a width.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace kvroof::cuda {

template <bool kScores>
using AttentionKernel = void (*)(DecodeArguments<kScores>);

template <Stored kType, bool kScores>
AttentionKernel<kScores> attention_kernel_of_width(unsigned width) {
  switch (width) {
    case 64: return &decode_attention<kType, 64, kScores>;
    case 128: return &decode_attention<kType, 128, kScores>;
    default: return &decode_attention<kType, 256, kScores>;
  }
}

template <bool kScores>
AttentionKernel<kScores> attention_kernel_of(Stored cache, unsigned width) {
  switch (cache) {
    case Stored::kBF16: return attention_kernel_of_width<Stored::kBF16, kScores>(width);
    case Stored::kF16: return attention_kernel_of_width<Stored::kF16, kScores>(width);
    case Stored::kInt8: return attention_kernel_of_width<Stored::kInt8, kScores>(width);
    case Stored::kInt4: break;
  }
  return attention_kernel_of_width<Stored::kInt4, kScores>(width);
}

template <bool kScores>
void launch_attention(Stream& stream, Stored cache, const DecodeArguments<kScores>& a) {
  const unsigned width = padded_width(a.head_dim > a.value_dim ? a.head_dim : a.value_dim);
  launch(stream, attention_kernel_of<kScores>(cache, width), {blocks_of(a)}, kAttentionThreads, a);
}

}  // namespace kvroof::cuda
