// Products of a weight matrix with a few vectors: each weight is read once, and what comes before and after the product
// (norm; bias, activation, gate, residual) is done on the way.
#pragma once

#include "kernels/cuda/numbers.cuh"

namespace kvroof::cuda {

constexpr unsigned kLinearThreads = 256;
constexpr unsigned kLinearWarps = kLinearThreads / 32;
constexpr unsigned kRowsOfWarp = 2;
constexpr unsigned kChunk = 2048;  // columns of x that lie in shared memory at once

KV_DEVICE float activated(ActivationMode f, float x) {
  switch (f) {
    case ActivationMode::kSilu: return x / (1.0F + exp_of(-x));
    case ActivationMode::kGelu: return 0.5F * x * (1.0F + erff(x * 0.70710678F));
    case ActivationMode::kGeluTanh: return 0.5F * x * (1.0F + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    case ActivationMode::kRelu: return x > 0 ? x : 0.0F;
    case ActivationMode::kSigmoid: return 1.0F / (1.0F + exp_of(-x));
    default: return x;
  }
}

template <Stored kType>
KV_DEVICE float element(const std::byte* data, std::size_t index) {
  const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(data)[index];
  return kType == Stored::kBF16 ? bf16_to_float(bits) : half_to_float(bits);
}

// The sum of term(element) over eights `first`, `first + step`, … of a row of x.
template <class Term>
KV_DEVICE float sum_of_eights(const float* x, std::uint32_t cols, unsigned first, unsigned step, const Term& term) {
  float sum = 0;
  KV_UNROLL_BY(4)
  for (unsigned i = first; i < cols / 8; i += step) {
    float eight[8];
    load_floats(x + std::size_t{i} * 8, eight);
    KV_UNROLL
    for (unsigned j = 0; j < 8; ++j) sum += term(eight[j]);
  }
  return sum;
}

// (centre, factor): the norm of a row is (x − centre) · factor · (scale + offset) + bias. For `step` threads, of which
// this is number `first`; `all` makes the sum of all of them out of a thread's. x is aligned to 16 bytes.
template <class All>
KV_DEVICE float2_t norm_by(const float* x, std::uint32_t cols, NormMode mode, float eps, unsigned first, unsigned step,
                           const All& all) {
  float2_t result = {0.0F, 1.0F};
  if (mode == NormMode::kNone) return result;
  if (mode == NormMode::kLayer) {
    const float sum = sum_of_eights(x, cols, first, step, [](float v) { return v; });
    result.x = all(sum) / static_cast<float>(cols);
  }
  const float centre = result.x;
  const float squares = sum_of_eights(x, cols, first, step, [=](float v) { return (v - centre) * (v - centre); });
  result.y = rsqrt_of(all(squares) / static_cast<float>(cols) + eps);
  return result;
}

// By all threads of a block.
KV_DEVICE float2_t norm_of(const float* x, std::uint32_t cols, NormMode mode, float eps, float* scratch) {
  return norm_by(x, cols, mode, eps, thread_x(), threads_x(), [=](float sum) { return block_sum(sum, scratch); });
}

// Eight columns of a norm's scale and bias, as they are stored.
template <Stored kType>
struct NormColumns {
  Eight<kType> scale = {}, bias = {};
};

template <Stored kType>
KV_DEVICE NormColumns<kType> load_norm_columns(const LinearArguments& a, unsigned column) {
  NormColumns<kType> out;
  if (a.norm == NormMode::kNone) return out;
  out.scale = load_eight<kType, true>(a.norm_scale, column / 8);
  if (a.norm_bias != nullptr) out.bias = load_eight<kType, true>(a.norm_bias, column / 8);
  return out;
}

// Those columns of a vector whose norm is `norm`.
template <Stored kType>
KV_DEVICE void apply_norm(const LinearArguments& a, float2_t norm, const NormColumns<kType>& columns, float (&x)[8]) {
  if (a.norm == NormMode::kNone) return;
  float scale[8];
  float bias[8];
  to_floats<kType>(columns.scale, scale);
  to_floats<kType>(columns.bias, bias);
  KV_UNROLL
  for (unsigned i = 0; i < 8; ++i) x[i] = (x[i] - norm.x) * norm.y * (scale[i] + a.norm_offset) + bias[i];
}

// Columns [first, first + count) of every token's normed x into `chunk` [kTokens][kChunk]; zeros up to a multiple of
// 256. A thread takes eight columns, and asks for those of all tokens at once. They lie in two halves, so that
// neighbouring lanes read neighbouring 16 bytes.
static_assert(kChunk == 8 * kLinearThreads);
template <Stored kType, unsigned kTokens>
KV_DEVICE void load_chunk(const LinearArguments& a, const float2_t (&norms)[kTokens], unsigned first, unsigned count,
                          float* chunk) {
  const unsigned column = thread_x() * 8;
  if (column >= (count + 255) / 256 * 256) return;
  float values[kTokens][8] = {};
  NormColumns<kType> columns;
  if (column < count) columns = load_norm_columns<kType>(a, first + column);
  KV_UNROLL
  for (unsigned t = 0; t < kTokens; ++t) {
    if (t < a.tokens && column < count) load_floats(a.x + std::size_t{t} * a.x_row + first + column, values[t]);
  }
  KV_UNROLL
  for (unsigned t = 0; t < kTokens; ++t) {
    if (t < a.tokens && column < count) apply_norm<kType>(a, norms[t], columns, values[t]);
    float* const place = chunk + t * kChunk + thread_x() * 4;
    KV_UNROLL
    for (unsigned i = 0; i < 8; ++i) place[i / 4 * (kChunk / 2) + i % 4] = values[t][i];
  }
}

// Adds the products of kRowsOfWarp rows from `row` on with the chunk's columns to `sums`. The weights of kAhead steps
// are asked for before the first of them is used: memory is far away.
template <Stored kType, unsigned kTokens>
KV_DEVICE void add_products(const DeviceMatrix& w, std::uint32_t row, unsigned first, unsigned count,
                            const float* chunk, float (&sums)[kRowsOfWarp][kTokens]) {
  constexpr unsigned kAhead = 4;
  const unsigned lane = thread_x() % 32;
  for (unsigned at = 0; at < count; at += kAhead * 256) {
    Eight<kType> weights[kAhead][kRowsOfWarp] = {};
    KV_UNROLL
    for (unsigned s = 0; s < kAhead; ++s) {
      const unsigned column = at + s * 256 + lane * 8;
      KV_UNROLL
      for (unsigned r = 0; r < kRowsOfWarp; ++r) {
        if (row + r >= w.rows || column >= count) continue;
        weights[s][r] = load_eight<kType>(w.data + (std::size_t{row + r} * w.cols + first) * 2, column / 8);
      }
    }
    KV_UNROLL
    for (unsigned s = 0; s < kAhead; ++s) {
      if (at + s * 256 >= count) continue;
      const float* x = chunk + (at / 8 + s * 32 + lane) * 4;
      float values[kRowsOfWarp][8];
      KV_UNROLL
      for (unsigned r = 0; r < kRowsOfWarp; ++r) to_floats<kType>(weights[s][r], values[r]);
      KV_UNROLL
      for (unsigned t = 0; t < kTokens; ++t) {
        KV_UNROLL
        for (unsigned i = 0; i < 8; ++i) {
          KV_UNROLL
          for (unsigned r = 0; r < kRowsOfWarp; ++r) {
            sums[r][t] += values[r][i] * x[t * kChunk + i / 4 * (kChunk / 2) + i % 4];
          }
        }
      }
    }
  }
}

// What becomes of a finished product of row `row` and token t, of the matrix of an expert.
template <Stored kType>
KV_DEVICE void finish_product(const LinearArguments& a, std::uint32_t row, unsigned t, float y, float up,
                              std::uint32_t expert = 0) {
  const std::size_t bias = std::size_t{a.w.rows} * expert + row;
  if (a.bias != nullptr) y += element<kType>(a.bias, bias);
  y = activated(a.activation, y);
  if (a.up.rows > 0) y *= a.up_bias != nullptr ? up + element<kType>(a.up_bias, bias) : up;
  y *= a.factor;
  if (a.token_factors != nullptr) y *= a.token_factors[t];
  if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
  float* out = a.out + std::size_t{t} * a.out_row + row;
  *out = a.add ? *out + y : y;
}

// The first 4 KiB of a warp's rows set out while the launch before still runs: weights wait for nobody.
KV_DEVICE void prefetch_rows(const DeviceMatrix& w, std::uint32_t row) {
  const std::size_t at = std::size_t{thread_x() % 32} * 128;
  for (unsigned r = 0; r < kRowsOfWarp; ++r) {
    const std::size_t bytes = std::size_t{w.cols} * 2;
    if (row + r < w.rows && at < bytes) prefetch(w.data + (row + r) * bytes + at);
  }
}

// The rows of a warp from `row` on for kTokens tokens; `chunk` [kTokens · kChunk] and `scratch` are shared memory.
template <Stored kType, unsigned kTokens>
KV_DEVICE void few_products(const LinearArguments& a, std::uint32_t row, float* chunk, float* scratch,
                            std::uint32_t expert = 0) {
  const unsigned lane = thread_x() % 32;
  float2_t norms[kTokens];
  KV_UNROLL
  for (unsigned t = 0; t < kTokens; ++t) {
    norms[t] = {0.0F, 1.0F};
    if (t >= a.tokens) continue;
    if (a.norms != nullptr) {
      norms[t] = {a.norms[2 * t], a.norms[2 * t + 1]};
    } else {
      norms[t] = norm_of(a.x + std::size_t{t} * a.x_row, a.w.cols, a.norm, a.norm_eps, scratch);
    }
  }
  float sums[kRowsOfWarp][kTokens] = {};
  float ups[kRowsOfWarp][kTokens] = {};
  for (unsigned first = 0; first < a.w.cols; first += kChunk) {
    const unsigned count = a.w.cols - first < kChunk ? a.w.cols - first : kChunk;
    sync_block();
    load_chunk<kType, kTokens>(a, norms, first, count, chunk);
    sync_block();
    add_products<kType, kTokens>(a.w, row, first, count, chunk, sums);
    if (a.up.rows > 0) add_products<kType, kTokens>(a.up, row, first, count, chunk, ups);
  }
  KV_UNROLL
  for (unsigned r = 0; r < kRowsOfWarp; ++r) {
    KV_UNROLL
    for (unsigned t = 0; t < kTokens; ++t) {
      const float y = sum_over(sums[r][t], 32);
      const float up = a.up.rows > 0 ? sum_over(ups[r][t], 32) : 0.0F;
      if (lane == 0 && t < a.tokens && row + r < a.w.rows) finish_product<kType>(a, row + r, t, y, up, expert);
    }
  }
}

// Blocks of a multiprocessor: what waits for memory in one is made up for by the others.
template <unsigned kTokens>
constexpr unsigned kLinearBlocks = kTokens == 1 ? 4 : 2;

// Blocks of kLinearThreads, one for each kLinearWarps · kRowsOfWarp rows. Reads every weight once.
template <Stored kType, unsigned kTokens>
KV_KERNEL KV_RESIDENT(kLinearThreads, kLinearBlocks<kTokens>) void linear(LinearArguments a) {
  KV_SHARED(float, chunk, kTokens * kChunk);
  KV_SHARED(float, scratch, kLinearWarps);
  const std::uint32_t row = (block_x() * kLinearWarps + thread_x() / 32) * kRowsOfWarp;
  prefetch_rows(a.w, row);
  if (a.up.rows > 0) prefetch_rows(a.up, row);
  await_previous();
  few_products<kType, kTokens>(a, row, chunk, scratch);
}

// The matrices of an expert in the place of the first one's. Its biases are found by its number: finish_product.
KV_DEVICE void take_expert(LinearArguments& a, std::uint32_t expert) {
  const std::size_t bytes = std::size_t{a.w.rows} * a.w.cols * 2 * expert;
  a.w.data += bytes;
  if (a.up.rows > 0) a.up.data += bytes;
}

// The same for pairs: y over pairs, each with the matrix of its expert.
template <Stored kType>
KV_KERNEL void linear_of_pairs(LinearArguments a) {
  KV_SHARED(float, chunk, kChunk);
  KV_SHARED(float, scratch, kLinearWarps);
  await_previous();
  const unsigned pair = block_y();
  const std::uint32_t expert = a.routed.chosen[pair];
  take_expert(a, expert);
  a.x += std::size_t{pair / a.routed.share} * a.x_row;
  a.out += std::size_t{pair} * a.out_row;
  if (a.token_factors != nullptr) a.token_factors += pair;
  a.tokens = 1;
  few_products<kType, 1>(a, (block_x() * kLinearWarps + thread_x() / 32) * kRowsOfWarp, chunk, scratch, expert);
}

// The matrix of a head in the place of the first one's, its vectors and its part of the result.
KV_DEVICE void take_head(LinearArguments& a, unsigned head) {
  a.w.data += std::size_t{a.w.rows} * a.w.cols * 2 * head;
  a.x += std::size_t{head} * a.heads.x_step;
  a.out += std::size_t{head} * a.heads.out_step;
}

// The same for heads with matrices of their own, and few tokens: y over heads of tokens.
template <Stored kType>
KV_KERNEL void linear_of_heads(LinearArguments a) {
  KV_SHARED(float, chunk, kChunk);
  KV_SHARED(float, scratch, kLinearWarps);
  await_previous();
  const unsigned token = block_y() / a.heads.count;
  take_head(a, block_y() % a.heads.count);
  a.x += std::size_t{token} * a.x_row;
  a.out += std::size_t{token} * a.out_row;
  a.tokens = 1;
  few_products<kType, 1>(a, (block_x() * kLinearWarps + thread_x() / 32) * kRowsOfWarp, chunk, scratch);
}

}  // namespace kvroof::cuda
