// Products of a weight matrix with a few vectors: each weight is read once, and what comes before and after the product
// (norm; bias, activation, gate, residual) is done on the way.
#pragma once

#include "kernels/cuda/vector_norm.cuh"
#include "sim/model/clamped_swiglu.hpp"

namespace kvroof::cuda {

constexpr unsigned kLinearThreads = 256;
constexpr unsigned kLinearWarps = kLinearThreads / 32;
constexpr unsigned kRowsOfWarp = 2;
constexpr unsigned kChunkFloats = 8192;
// Columns of each token's x that lie in shared memory at once.
template <unsigned kTokens>
constexpr unsigned kChunk = kChunkFloats / kTokens;

// Of a clamped gate, what clamped_up() multiplies.
KV_DEVICE float activated(ActivationMode f, float x) {
  switch (f) {
    case ActivationMode::kClampedSwiglu: {
      const float gate = x > kSwigluLimit ? kSwigluLimit : x;
      return gate / (1.0F + exp_of(-kSwigluSlope * gate));
    }
    case ActivationMode::kSilu: return x / (1.0F + exp_of(-x));
    case ActivationMode::kGelu: return 0.5F * x * (1.0F + erff(x * 0.70710678F));
    case ActivationMode::kGeluTanh: return 0.5F * x * (1.0F + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    case ActivationMode::kRelu: return x > 0 ? x : 0.0F;
    case ActivationMode::kRelu2: return x > 0 ? x * x : 0.0F;
    case ActivationMode::kSigmoid: return 1.0F / (1.0F + exp_of(-x));
    default: return x;
  }
}

// A NaN stays.
KV_DEVICE float clamped_up(float up) {
  return (up > kSwigluLimit ? kSwigluLimit : up < -kSwigluLimit ? -kSwigluLimit : up) + 1.0F;
}

template <Stored kType>
KV_DEVICE float element(const std::byte* data, std::size_t index) {
  const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(data)[index];
  return kType == Stored::kBF16 ? bf16_to_float(bits) : half_to_float(bits);
}

// Where eight columns of a token lie in a chunk [kTokens][kChunk]: in two halves, so that neighbouring lanes read
// neighbouring 16 bytes.
template <unsigned kTokens>
KV_DEVICE void store_eight(float* chunk, unsigned eight, const float (&values)[8]) {
  KV_UNROLL
  for (unsigned i = 0; i < 8; ++i) chunk[eight * 4 + i / 4 * (kChunk<kTokens> / 2) + i % 4] = values[i];
}

template <unsigned kTokens>
KV_DEVICE void load_eight_of(const float* chunk, unsigned eight, float (&values)[8]) {
  KV_UNROLL
  for (unsigned i = 0; i < 8; ++i) values[i] = chunk[eight * 4 + i / 4 * (kChunk<kTokens> / 2) + i % 4];
}

template <unsigned kTokens>
KV_DEVICE unsigned columns_of_chunk(const LinearArguments& a, unsigned first) {
  return a.w.cols - first < kChunk<kTokens> ? a.w.cols - first : kChunk<kTokens>;
}

// The norm's columns from `first` on into the chunk, as they are stored: the 32 bytes of an eight of x are those of its
// scale and bias, and the thread that puts them there is the one that replaces them by x. They are copied past the
// registers: a store of them would wait for the weights that were asked for before, and await_previous() after that.
template <Stored kType, unsigned kTokens>
KV_DEVICE void load_norms(const LinearArguments& a, unsigned first, float* chunk) {
  if (a.norm == NormMode::kNone) return;
  const unsigned count = columns_of_chunk<kTokens>(a, first) / 8;
  KV_UNROLL_BY(1)
  for (unsigned eight = thread_x(); eight < count; eight += kLinearThreads) {
    float* const scale = chunk + eight * 4;
    float* const bias = scale + kChunk<kTokens> / 2;
    const std::size_t at = (first / 8 + std::size_t{eight}) * 16;
    copy_to_shared(scale, a.norm_scale + at);
    if (a.norm_bias != nullptr) {
      copy_to_shared(bias, a.norm_bias + at);
    } else {
      KV_UNROLL
      for (unsigned i = 0; i < 4; ++i) bias[i] = 0;
    }
  }
}

// Columns of every token's normed x from `first` on in the place of the norm's; zeros up to a multiple of 256.
template <Stored kType, unsigned kTokens>
KV_DEVICE void load_chunk(const LinearArguments& a, const float2_t (&norms)[kTokens], unsigned first, float* chunk) {
  constexpr unsigned kEights = kTokens == 1 ? kTogether : 1;
  const unsigned count = columns_of_chunk<kTokens>(a, first) / 8;
  await_copies();
  for (unsigned begin = thread_x(); begin < (count + 31) / 32 * 32; begin += kEights * kLinearThreads) {
    float values[kEights][kTokens][8] = {};
    KV_UNROLL
    for (unsigned u = 0; u < kEights; ++u) {
      const unsigned eight = begin + u * kLinearThreads;
      KV_UNROLL
      for (unsigned t = 0; t < kTokens; ++t) {
        if (t >= a.tokens || eight >= count) continue;
        load_floats(a.x + std::size_t{t} * a.x_row + first + eight * 8, values[u][t]);
      }
    }
    KV_UNROLL
    for (unsigned u = 0; u < kEights; ++u) {
      const unsigned eight = begin + u * kLinearThreads;
      if (eight >= (count + 31) / 32 * 32) continue;
      NormColumns<kType> columns;
      float words[8] = {};
      if (a.norm != NormMode::kNone && eight < count) load_eight_of<kTokens>(chunk, eight, words);
      KV_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        columns.scale.words[i] = bits_of(words[i]);
        columns.bias.words[i] = bits_of(words[i + 4]);
      }
      KV_UNROLL
      for (unsigned t = 0; t < kTokens; ++t) {
        if (t < a.tokens && eight < count) apply_norm<kType>(a, norms[t], columns, values[u][t]);
        store_eight<kTokens>(chunk + t * kChunk<kTokens>, eight, values[u][t]);
      }
    }
  }
}

// A warp multiplies kRowsOfWarp rows at once: neighbours of w, or, with a gate, a row of w and the same of up. A round
// of a block is what its warps multiply at once.
KV_EVERYWHERE unsigned rows_of_round(const LinearArguments& a) {
  return kLinearWarps * (a.up.rows > 0 ? 1 : kRowsOfWarp);
}

// Rows of w that a block makes in equal rounds, one behind the other, where so many blocks make all.
KV_DEVICE unsigned rows_of_block(const LinearArguments& a, unsigned blocks) {
  const unsigned round = rows_of_round(a);
  const unsigned rounds = (a.w.rows + round - 1) / round;
  return (rounds + blocks - 1) / blocks * round;
}

struct RowRange {
  std::uint32_t first = 0, end = 0;
};

// Those of the running block.
KV_DEVICE RowRange block_rows(const LinearArguments& a) {
  const unsigned rows = rows_of_block(a, blocks_x());
  const std::uint32_t first = block_x() * rows;
  return {first, first + rows < a.w.rows ? first + rows : a.w.rows};
}

// The first row of the running warp in the round that begins with row `first`.
KV_DEVICE std::uint32_t row_of_warp(const LinearArguments& a, std::uint32_t first) {
  return first + thread_x() / 32 * (a.up.rows > 0 ? 1 : kRowsOfWarp);
}

// The weights that a warp has asked for and not used yet. Memory is far away, and what a lane waits for may as well be
// of the next rows: a step of 256 columns is asked for as soon as its place is free, over the ends of rows and chunks.
constexpr unsigned kAhead = 4;
constexpr unsigned kStride = kAhead * 256;
template <Stored kType>
class WeightStream {
 public:
  using Rows = Eight<kType>[kRowsOfWarp];

  // Asks for the first of them.
  KV_DEVICE WeightStream(const LinearArguments& a, RowRange rows)
      : a_(a), row_(row_of_warp(a, rows.first)), end_(rows.end) {
    KV_UNROLL
    for (unsigned s = 0; s < kAhead; ++s) ask(s);
    advance();
  }
  // Step s of the present kStride columns; the next ask(s) takes its place.
  KV_DEVICE const Rows& step(unsigned s) const { return ahead_[s]; }
  // Step s of the next columns; zeros where there are none.
  KV_DEVICE void ask(unsigned s) {
    const bool gated = a_.up.rows > 0;
    const unsigned eights = a_.w.cols / 8;
    const unsigned eight = column_ / 8 + s * 32 + thread_x() % 32;
    const std::uint32_t index = row_ * eights + eight;  // a matrix has fewer than 2^32
    ahead_[s][0] = {};
    ahead_[s][1] = {};
    if (eight >= eights) return;
    if (row_ < end_) ahead_[s][0] = load_eight<kType>(a_.w.data, index);
    if (row_ + (gated ? 0 : 1) < end_) {
      ahead_[s][1] = load_eight<kType>(gated ? a_.up.data : a_.w.data, index + (gated ? 0 : eights));
    }
  }
  // After all steps were asked for.
  KV_DEVICE void advance() {
    column_ += kStride;
    if (column_ < a_.w.cols) return;
    column_ = 0;
    row_ += rows_of_round(a_);
  }

 private:
  static_assert(kRowsOfWarp == 2);
  const LinearArguments& a_;
  std::uint32_t row_, end_;  // of the warp; of the block
  unsigned column_ = 0;
  Rows ahead_[kAhead];
};

// Adds products of weights with eight columns of each token, whose two halves lie at `x` and half a chunk behind.
template <Stored kType, unsigned kTokens>
KV_DEVICE void add_products(const Eight<kType> (&weights)[kRowsOfWarp], const float* x,
                            float (&sums)[kRowsOfWarp][kTokens]) {
  float values[kRowsOfWarp][8];
  KV_UNROLL
  for (unsigned r = 0; r < kRowsOfWarp; ++r) to_floats<kType>(weights[r], values[r]);
  KV_UNROLL
  for (unsigned t = 0; t < kTokens; ++t) {
    KV_UNROLL
    for (unsigned i = 0; i < 8; ++i) {
      KV_UNROLL
      for (unsigned r = 0; r < kRowsOfWarp; ++r) {
        sums[r][t] += values[r][i] * x[t * kChunk<kTokens> + i / 4 * (kChunk<kTokens> / 2) + i % 4];
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
  if (a.up.rows > 0) {
    if (a.up_bias != nullptr) up += element<kType>(a.up_bias, bias);
    y *= a.activation == ActivationMode::kClampedSwiglu ? clamped_up(up) : up;
  }
  y *= a.factor;
  if (a.token_factors != nullptr) y *= a.token_factors[t];
  if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
  float* out = a.out + std::size_t{t} * a.out_row + row;
  *out = a.add ? *out + y : y;
}

// The lines that a launch meets cold and that no launch before it writes, fetched while that one still runs: what
// follows the first kStride columns of the warp's rows, and biases.
KV_DEVICE void prefetch_linear(const LinearArguments& a, RowRange rows) {
  const std::size_t bytes = std::size_t{a.w.cols} * 2;
  const std::uint32_t row = row_of_warp(a, rows.first);
  const bool gated = a.up.rows > 0;
  constexpr std::size_t kAsked = kStride * 2, kMost = 4096;
  if (bytes > kAsked) {
    const std::size_t at = row * bytes + kAsked;
    const auto count = static_cast<unsigned>(bytes - kAsked < kMost ? bytes - kAsked : kMost);
    if (row < rows.end) prefetch_range(a.w.data + at, count);
    if (row + (gated ? 0 : 1) < rows.end) prefetch_range((gated ? a.up.data : a.w.data + bytes) + at, count);
  }
  if (thread_x() % 32 > 0 || row >= rows.end) return;
  if (a.bias != nullptr) prefetch(a.bias + std::size_t{row} * 2);
  if (a.up_bias != nullptr) prefetch(a.up_bias + std::size_t{row} * 2);
}

// A warp's finished rows from `row` on, of those before `end`.
template <Stored kType, unsigned kTokens>
KV_DEVICE void finish_rows(const LinearArguments& a, std::uint32_t row, std::uint32_t end,
                           const float (&sums)[kRowsOfWarp][kTokens], std::uint32_t expert) {
  const bool gated = a.up.rows > 0;
  KV_UNROLL
  for (unsigned t = 0; t < kTokens; ++t) {
    float y[kRowsOfWarp];
    KV_UNROLL
    for (unsigned r = 0; r < kRowsOfWarp; ++r) y[r] = sum_over(sums[r][t], 32);
    if (thread_x() % 32 > 0 || t >= a.tokens) continue;
    if (row < end) finish_product<kType>(a, row, t, y[0], y[1], expert);
    if (!gated && row + 1 < end) finish_product<kType>(a, row + 1, t, y[1], 0, expert);
  }
}

// Products of the rows of a block, which `weights` has begun with, for kTokens tokens. `chunk` [kChunkFloats], which
// holds the first columns of the norm, and `scratch` [kLinearWarps] are shared memory.
template <Stored kType, unsigned kTokens>
KV_DEVICE void few_products(const LinearArguments& a, RowRange rows, WeightStream<kType>& weights, float* chunk,
                            float* scratch, std::uint32_t expert = 0) {
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
  load_chunk<kType, kTokens>(a, norms, 0, chunk);
  sync_block();
  for (std::uint32_t first = rows.first; first < rows.end; first += rows_of_round(a)) {
    float sums[kRowsOfWarp][kTokens] = {};
    for (unsigned column = 0; column < a.w.cols; column += kStride) {
      const unsigned in_chunk = column % kChunk<kTokens>;
      if (in_chunk == 0 && a.w.cols > kChunk<kTokens> && (first > rows.first || column > 0)) {
        sync_block();
        load_norms<kType, kTokens>(a, column, chunk);
        load_chunk<kType, kTokens>(a, norms, column, chunk);
        sync_block();
      }
      const float* const x = chunk + (in_chunk / 8 + thread_x() % 32) * 4;
      KV_UNROLL
      for (unsigned s = 0; s < kAhead; ++s) {
        if (column + s * 256 < a.w.cols) add_products<kType, kTokens>(weights.step(s), x + s * 128, sums);
        weights.ask(s);
      }
      weights.advance();
    }
    finish_rows<kType, kTokens>(a, row_of_warp(a, first), rows.end, sums, expert);
  }
}

// Blocks of a multiprocessor: what waits for memory in one is made up for by the others.
template <unsigned kTokens>
constexpr unsigned kLinearBlocks = kTokens == 1 ? 3 : 2;

// Blocks of kLinearThreads, no more than there is room for at once. Reads every weight once.
template <Stored kType, unsigned kTokens>
KV_KERNEL KV_RESIDENT(kLinearThreads, kLinearBlocks<kTokens>) void linear(LinearArguments a) {
  KV_SHARED(float, chunk, kChunkFloats);
  KV_SHARED(float, scratch, kLinearWarps);
  allow_next();
  const RowRange rows = block_rows(a);
  WeightStream<kType> weights(a, rows);
  prefetch_linear(a, rows);
  load_norms<kType, kTokens>(a, 0, chunk);
  await_previous();
  few_products<kType, kTokens>(a, rows, weights, chunk, scratch);
}

// The matrices of an expert in the place of the first one's. Its biases are found by its number: finish_product.
KV_DEVICE void take_expert(LinearArguments& a, std::uint32_t expert) {
  const std::size_t bytes = std::size_t{a.w.rows} * a.w.cols * 2 * expert;
  a.w.data += bytes;
  if (a.up.rows > 0) a.up.data += bytes;
}

// The rows of a block for one token, where nothing was asked for before.
template <Stored kType>
KV_DEVICE void one_product(LinearArguments& a, float* chunk, float* scratch, std::uint32_t expert = 0) {
  a.tokens = 1;
  const RowRange rows = block_rows(a);
  WeightStream<kType> weights(a, rows);
  load_norms<kType, 1>(a, 0, chunk);
  few_products<kType, 1>(a, rows, weights, chunk, scratch, expert);
}

// The same for pairs: y over pairs, each with the matrix of its expert.
template <Stored kType>
KV_KERNEL KV_RESIDENT(kLinearThreads, kLinearBlocks<1>) void linear_of_pairs(LinearArguments a) {
  KV_SHARED(float, chunk, kChunkFloats);
  KV_SHARED(float, scratch, kLinearWarps);
  await_previous();
  const unsigned pair = block_y();
  const std::uint32_t expert = a.routed.chosen[pair];
  take_expert(a, expert);
  a.x += std::size_t{pair / a.routed.share} * a.x_row;
  a.out += std::size_t{pair} * a.out_row;
  if (a.token_factors != nullptr) a.token_factors += pair;
  one_product<kType>(a, chunk, scratch, expert);
}

// The matrix of a head in the place of the first one's, its vectors and its part of the result.
KV_DEVICE void take_head(LinearArguments& a, unsigned head) {
  a.w.data += std::size_t{a.w.rows} * a.w.cols * 2 * head;
  a.x += std::size_t{head} * a.heads.x_step;
  a.out += std::size_t{head} * a.heads.out_step;
}

// The same for heads with matrices of their own, and few tokens: y over heads of tokens.
template <Stored kType>
KV_KERNEL KV_RESIDENT(kLinearThreads, kLinearBlocks<1>) void linear_of_heads(LinearArguments a) {
  KV_SHARED(float, chunk, kChunkFloats);
  KV_SHARED(float, scratch, kLinearWarps);
  await_previous();
  const unsigned token = block_y() / a.heads.count;
  take_head(a, block_y() % a.heads.count);
  a.x += std::size_t{token} * a.x_row;
  a.out += std::size_t{token} * a.out_row;
  one_product<kType>(a, chunk, scratch);
}

}  // namespace kvroof::cuda
