// Where a pass begins (embedding, angles of its positions), norms that stand alone, and rows that change slots.
#pragma once

#include "kernels/cuda/linear.cuh"

namespace kvroof::cuda {

constexpr unsigned kRowThreads = 256;

// Blocks of kRowThreads, one a token.
template <Stored kType>
KV_KERNEL void embed_rows(EmbedArguments a) {
  await_previous();
  const unsigned t = block_x();
  const std::size_t row = a.table != nullptr ? static_cast<std::size_t>(a.ids[t]) * a.cols : 0;
  for (unsigned i = thread_x(); i < a.cols; i += kRowThreads) {
    float value = a.table != nullptr ? a.factor * element<kType>(a.table, row + i) : 0.0F;
    if (a.positions != nullptr) value += element<kType>(a.positions, std::size_t{a.position_rows[t]} * a.cols + i);
    a.out[std::size_t{t} * a.cols + i] = value;
  }
}

// A thread a pair. The angle is formed in float, as the models were trained.
KV_PLAIN_KERNEL void make_cos_sin(RotaryArguments a) {
  await_previous();
  const unsigned i = block_x() * threads_x() + thread_x();
  if (i >= a.tokens * a.pairs) return;
  const unsigned token = i / a.pairs;
  const bool use_long = a.use_long != nullptr && a.use_long[token] != 0;
  const float angle =
      static_cast<float>(a.positions[token]) * (use_long ? a.long_frequencies : a.frequencies)[i % a.pairs];
  a.cos_sin[2 * i] = cosf(angle) * a.magnitude;
  a.cos_sin[2 * i + 1] = sinf(angle) * a.magnitude;
}

// Blocks of kRowThreads, a thread eight elements.
template <Stored kType>
KV_KERNEL void fill_random(FillArguments a) {
  await_previous();
  const std::uint64_t block = std::uint64_t{block_x()} * kRowThreads + thread_x();
  float eight[8];
  random_eight(a.fill, block, eight);
  for (unsigned i = 0; i < 8 && block * 8 + i < a.count; ++i) {
    reinterpret_cast<std::uint16_t*>(a.out)[block * 8 + i] =
        kType == Stored::kBF16 ? float_to_bf16(eight[i]) : float_to_half(eight[i]);
  }
}

// Blocks of kRowThreads, one a row.
template <Stored kType>
KV_KERNEL void norm_rows(NormArguments a) {
  KV_SHARED(float, scratch, kRowThreads / 32);
  await_previous();
  const float* x = a.x + std::size_t{block_x()} * a.cols;
  float* out = a.out + std::size_t{block_x()} * a.cols;
  const float2_t norm = norm_of(x, a.cols, a.mode, a.eps, scratch);
  for (unsigned i = thread_x(); i < a.cols; i += kRowThreads) {
    float value = (x[i] - norm.x) * norm.y * (element<kType>(a.scale, i) + a.offset);
    if (a.bias != nullptr) value += element<kType>(a.bias, i);
    out[i] = a.add ? out[i] + a.factor * value : value;
  }
}

// Blocks of kRowThreads, a warp a move.
KV_PLAIN_KERNEL void move_rows(MoveArguments a) {
  await_previous();
  const unsigned i = block_x() * (kRowThreads / 32) + thread_x() / 32;
  if (i >= a.moves) return;
  const RowMove move = a.rows[i];
  const CacheSlots from = a.from[move.head];
  const CacheSlots to = a.to[move.head];
  const std::size_t source = move.from;
  const std::size_t target = move.to;
  const unsigned lane = thread_x() % 32;
  const auto copy = [&](const std::byte* in, std::byte* out, std::uint32_t bytes) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(in + source * bytes);
    auto* copies = reinterpret_cast<std::uint32_t*>(out + target * bytes);
    for (unsigned w = lane; w < bytes / 4; w += 32) copies[w] = words[w];
  };
  copy(from.keys, to.keys, a.key_row_bytes);
  copy(from.values, to.values, a.value_row_bytes);
  for (unsigned c = lane; c < a.state_columns; c += 32) {
    to.state[c * to.stride + target] = from.state[c * from.stride + source];
  }
  if (lane != 0) return;
  to.positions[target] = from.positions[source];
  if (!a.scales) return;
  to.key_scales[target] = from.key_scales[source];
  to.value_scales[target] = from.value_scales[source];
}

}  // namespace kvroof::cuda
