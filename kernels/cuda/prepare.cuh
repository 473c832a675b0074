// Between the projections and attention: clamp, q/k norms and rotation of each head, and the new rows of the cache.
#pragma once

#include "kernels/cuda/linear.cuh"

namespace kvroof::cuda {

constexpr unsigned kPrepareThreads = 256;

// A row of floats in shared memory becomes a stored row; written by one warp. Elements per lane: dim / 32, in steps
// of 8.
template <Stored kType>
KV_DEVICE void store_row(const float* row, std::uint32_t dim, std::byte* out, float* scale_out) {
  const unsigned lane = thread_x() % 32;
  float scale = 1;
  if constexpr (kBits<kType> < 16) {
    float largest = 0;
    for (unsigned i = lane; i < dim; i += 32) largest = fabsf(row[i]) > largest ? fabsf(row[i]) : largest;
    constexpr float kLargest = kType == Stored::kInt8 ? 127.0F : 7.0F;
    scale = max_over(largest, 32) / kLargest;
    if (lane == 0) *scale_out = scale;
  }
  const float factor = scale > 0 ? 1.0F / scale : 0.0F;
  for (unsigned eight = lane; eight < dim / 8; eight += 32) {
    std::uint32_t words[4] = {};
    KV_UNROLL
    for (unsigned i = 0; i < 8; ++i) {
      const float value = row[eight * 8 + i];
      if constexpr (kBits<kType> == 16) {
        const std::uint32_t bits = kType == Stored::kBF16 ? float_to_bf16(value) : float_to_half(value);
        words[i / 2] |= bits << (i % 2 * 16);
      } else {
        const auto rounded = static_cast<std::int32_t>(rintf(value * factor));
        constexpr std::uint32_t kMask = (1U << kBits<kType>)-1;
        words[i * kBits<kType> / 32] |= (static_cast<std::uint32_t>(rounded) & kMask) << (i * kBits<kType> % 32);
      }
    }
    auto* to = reinterpret_cast<std::uint32_t*>(out) + eight * (kBits<kType> / 4);
    KV_UNROLL
    for (unsigned i = 0; i < kBits<kType> / 4; ++i) to[i] = words[i];
  }
}

template <Stored kType>
KV_DEVICE float rounded_as(float x) {
  if constexpr (kType == Stored::kBF16) return bf16_to_float(float_to_bf16(x));
  if constexpr (kType == Stored::kF16) return half_to_float(float_to_half(x));
  return x;
}

// The norm of one head in `row`, by its warp, which has written it element by element.
template <Stored kWeights>
KV_DEVICE void norm_head(const PrepareArguments& a, const HeadPart& part, unsigned head, float whole_factor,
                         float* row) {
  if (part.norm_scale == nullptr) return;
  const unsigned lane = thread_x() % 32;
  const unsigned count = part.normed > 0 ? part.normed : part.dim;
  float centre = 0;
  if (a.norm_mode == NormMode::kLayer) {
    float sum = 0;
    for (unsigned i = lane; i < count; i += 32) sum += row[i];
    centre = sum_over(sum, 32) / static_cast<float>(count);
  }
  float squares = 0;
  for (unsigned i = lane; i < count; i += 32) squares += (row[i] - centre) * (row[i] - centre);
  squares = sum_over(squares, 32);
  const bool whole = a.norm == HeadNorm::kWhole;
  const float factor = whole ? whole_factor : rsqrt_of(squares / static_cast<float>(count) + a.norm_eps);
  const unsigned first = a.norm == HeadNorm::kHead ? 0 : head * part.dim;
  for (unsigned i = lane; i < count; i += 32) {
    const float scale = element<kWeights>(part.norm_scale, first + i) + a.norm_offset;
    row[i] = (row[i] - (whole ? 0.0F : centre)) * factor * scale;
    if (part.norm_bias != nullptr) row[i] += element<kWeights>(part.norm_bias, first + i);
  }
}

// The rotation of one head in `row`, by its warp.
KV_DEVICE void rotate_head(const PrepareArguments& a, const HeadPart& part, unsigned token, float* row) {
  if (!part.rotates) return;
  sync_warp();
  for (unsigned i = thread_x() % 32; i < a.rotary_pairs; i += 32) {
    const float* cos_sin = a.cos_sin + (std::size_t{token} * a.rotary_pairs + i) * 2;
    float* one = row + part.rotary_first + (a.adjacent ? 2 * i : i);
    float* other = row + part.rotary_first + (a.adjacent ? 2 * i + 1 : i + a.rotary_pairs);
    const float first = *one;
    const float second = *other;
    *one = first * cos_sin[0] - second * cos_sin[1];
    *other = second * cos_sin[0] + first * cos_sin[1];
  }
}

// Clamp, norm and rotation of one head into `row` (shared memory of this warp).
template <Stored kWeights>
KV_DEVICE void prepare_head(const PrepareArguments& a, const HeadPart& part, const float* x, unsigned head,
                            unsigned token, float whole_factor, float* row) {
  for (unsigned i = thread_x() % 32; i < part.dim; i += 32) {
    float value = x[i];
    if (a.clip > 0) value = value < -a.clip ? -a.clip : value > a.clip ? a.clip : value;
    row[i] = value;
  }
  if (a.norm_last) {
    rotate_head(a, part, token, row);
    sync_warp();
  }
  norm_head<kWeights>(a, part, head, whole_factor, row);
  if (!a.norm_last) rotate_head(a, part, token, row);
}

// The factor of an RMS norm over a whole projection; 0 where there is none. For all threads of the block.
KV_DEVICE float whole_norm(const PrepareArguments& a, const HeadPart& part, const float* x, float* scratch) {
  if (a.norm != HeadNorm::kWhole || part.norm_scale == nullptr) return 0;
  float squares = 0;
  for (unsigned i = thread_x(); i < part.heads * part.dim; i += kPrepareThreads) {
    float value = x[i];
    if (a.clip > 0) value = value < -a.clip ? -a.clip : value > a.clip ? a.clip : value;
    squares += value * value;
  }
  return rsqrt_of(block_sum(squares, scratch) / static_cast<float>(part.heads * part.dim) + a.norm_eps);
}

// QueryScale::at() of a token.
KV_DEVICE float query_scale(const PrepareArguments& a, unsigned token) {
  if (a.query_scale.beta == 0) return 1;
  const std::uint32_t lengths = a.positions[token] / a.query_scale.original;
  return 1 + a.query_scale.beta * logf(1 + static_cast<float>(lengths));
}

// A prepared head goes where it belongs: queries rounded as the keys are, rows of k and v into their slots; for a warp.
// `which`: 0 of q, 1 of k, 2 of v.
template <Stored kCache>
KV_DEVICE void store_head(const PrepareArguments& a, unsigned which, const HeadPart& part, unsigned head,
                          unsigned token, const float* row) {
  const unsigned lane = thread_x() % 32;
  if (which == 0) {
    float* out = a.q_out + (std::size_t{token} * part.heads + head) * (a.absorbed + part.dim);
    const float scale = query_scale(a, token);
    for (unsigned i = lane; i < a.absorbed; i += 32) out[i] = rounded_as<kCache>(scale * out[i]);
    for (unsigned i = lane; i < part.dim; i += 32) out[a.absorbed + i] = rounded_as<kCache>(scale * row[i]);
    return;
  }
  std::byte* record = which == 1 ? a.k_copy : a.v_copy;
  if (record != nullptr && kBits<kCache> == 16) {
    store_row<kCache>(row, part.dim, record + (std::size_t{token} * part.heads + head) * part.dim * 2, nullptr);
  }
  for (unsigned copy = 0; copy < a.copies; ++copy) {
    const unsigned storage = head * a.copies + copy;
    const bool prompt = a.slot_of == nullptr && a.rows == nullptr;
    const unsigned place = token * part.heads * a.copies + storage;
    const CacheSlots to = a.slots[prompt ? storage : place];
    std::size_t slot = token;
    if (a.slot_of != nullptr) {
      slot = a.slot_of[place];
    } else if (a.rows != nullptr) {
      slot = a.rows[token].slot == kOwnSlot ? *to.next : a.rows[token].slot;
    }
    if (which == 1) {
      store_row<kCache>(row, part.dim, to.keys + slot * a.key_row_bytes, to.key_scales + slot);
      if (lane == 0) to.positions[slot] = a.positions[token];
    } else {
      store_row<kCache>(row, part.dim, to.values + slot * a.value_row_bytes, to.value_scales + slot);
    }
  }
}

// Blocks of kPrepareThreads: x over tokens, y over q, k, v. A warp takes a head.
template <Stored kWeights, Stored kCache>
KV_KERNEL void prepare_heads(PrepareArguments a) {
  KV_SHARED(float, rows, kPrepareThreads / 32 * kMostHeadDim);
  KV_SHARED(float, scratch, kPrepareThreads / 32);
  await_previous();
  const unsigned token = block_x();
  const unsigned which = block_y();
  const HeadPart part = which == 0 ? a.q : which == 1 ? a.k : a.v;
  const float* x = part.from.x + std::size_t{token} * part.from.row;
  const float whole = whole_norm(a, part, x, scratch);
  float* row = rows + thread_x() / 32 * kMostHeadDim;
  for (unsigned head = thread_x() / 32; head < part.heads; head += kPrepareThreads / 32) {
    prepare_head<kWeights>(a, part, x + std::size_t{head} * part.from.step, head, token, whole, row);
    sync_warp();
    store_head<kCache>(a, which, part, head, token, row);
    sync_warp();
  }
}

}  // namespace kvroof::cuda
