// The words that device code is written in: one text for nvcc and for the emulator of the tests.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)

#include <cuda_fp16.h>

#define KV_KERNEL __global__        // templates
#define KV_PLAIN_KERNEL __global__
#define KV_RESIDENT(threads, blocks) __launch_bounds__(threads, blocks)  // blocks of a multiprocessor, at least
#define KV_DEVICE __device__ __forceinline__
#define KV_EVERYWHERE __host__ __device__ __forceinline__
#define KV_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define KV_UNROLL _Pragma("unroll")
#define KV_PRAGMA(text) _Pragma(#text)
#define KV_UNROLL_BY(n) KV_PRAGMA(unroll n)

namespace kvroof::cuda {

using Pack = uint4;  // 16 bytes, loaded at once
using Pair = uint2;
using float2_t = float2;
constexpr unsigned kAllLanes = 0xffffffffU;

KV_DEVICE unsigned thread_x() { return threadIdx.x; }
KV_DEVICE unsigned block_x() { return blockIdx.x; }
KV_DEVICE unsigned block_y() { return blockIdx.y; }
KV_DEVICE unsigned threads_x() { return blockDim.x; }
KV_DEVICE unsigned blocks_x() { return gridDim.x; }
KV_DEVICE void sync_block() { __syncthreads(); }
KV_DEVICE void sync_warp() { __syncwarp(); }
template <class T>
KV_DEVICE T from_lane_xor(T v, unsigned mask) { return __shfl_xor_sync(kAllLanes, v, mask); }
template <class T>
KV_DEVICE T from_lane(T v, unsigned lane) { return __shfl_sync(kAllLanes, v, lane); }
// The lanes of the warp where it holds, a bit each.
KV_DEVICE std::uint32_t lanes_where(bool holds) { return __ballot_sync(kAllLanes, holds); }
KV_DEVICE unsigned count_bits(std::uint32_t x) { return static_cast<unsigned>(__popc(x)); }
// Byte i of the result is byte (bits 4i … 4i + 2 of `which`) of y:x (PTX ISA, prmt).
KV_DEVICE std::uint32_t permute_bytes(std::uint32_t x, std::uint32_t y, std::uint32_t which) {
  return __byte_perm(x, y, which);
}
// (x & mask) ^ bits as one instruction, which the compiler makes two of where both are constants.
KV_DEVICE std::uint32_t masked_xor(std::uint32_t x, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(x), "r"(mask), "r"(bits));
  return out;
}
KV_DEVICE unsigned add_atomic(unsigned* p, unsigned v) { return atomicAdd(p, v); }
// Adds 1, and gives what was there. What came before it in any block that counted is seen after it (release and acquire
// over the device; a barrier of the block passes both on to its other threads: PTX ISA, causality order).
KV_DEVICE unsigned count_between_blocks(unsigned* p) {
  unsigned ticket;
  asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(p) : "memory");
  return ticket;
}
KV_DEVICE void or_atomic(std::uint32_t* p, std::uint32_t v) { atomicOr(p, v); }
// The next launch may be made ready (programmatic dependent launch): first in kernels that have work to do before
// await_previous(), so that this work does not keep the next one's waiting.
KV_DEVICE void allow_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// In every kernel: allow_next(), and nothing that an earlier launch writes is read before that launch is done.
// What comes before it in a kernel (its preamble) may run beside any of the launches before, and reads only what was
// copied to the device before the first of them; it may bring anything nearer.
KV_DEVICE void await_previous() {
  allow_next();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Has the line brought to the second-level cache.
KV_DEVICE void prefetch(const std::byte* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// The same of a range, by a warp; its beginning and its length are multiples of 16 bytes.
KV_DEVICE void prefetch_range(const std::byte* p, unsigned bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (thread_x() % 32 == 0) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
  }
#else
  for (unsigned at = thread_x() % 32 * 128; at < bytes; at += 32 * 128) prefetch(p + at);
#endif
}
// 16 aligned bytes into shared memory, which nothing waits for but await_copies() of the same thread.
KV_DEVICE void copy_to_shared(void* to, const void* from) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
KV_DEVICE void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// What is read once a step goes past the first-level cache.
template <class T>
KV_DEVICE T load_once(const T* p) { return __ldcs(p); }
// 16 or 8 aligned bytes of anything at once.
KV_DEVICE Pack load_pack(const void* p) { return *static_cast<const Pack*>(p); }
KV_DEVICE Pair load_pair(const void* p) { return *static_cast<const Pair*>(p); }
// 2^x and e^x; what is below the least normal number is 0.
KV_DEVICE float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KV_DEVICE float exp_of(float x) { return exp2_of(x * 1.44269504F); }
KV_DEVICE float ratio_of(float a, float b) { return __fdividef(a, b); }  // 0 where b is over 2^126
KV_DEVICE float higher_of(float a, float b) { return fmaxf(a, b); }
KV_DEVICE float rsqrt_of(float x) { return rsqrtf(x); }
KV_DEVICE float half_to_float(std::uint16_t x) { return __half2float(__ushort_as_half(x)); }
KV_DEVICE std::uint16_t float_to_half(float x) { return __half_as_ushort(__float2half_rn(x)); }
KV_DEVICE std::uint32_t bits_of(float x) { return __float_as_uint(x); }
KV_DEVICE float float_of(std::uint32_t x) { return __uint_as_float(x); }

}  // namespace kvroof::cuda

#else

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/cuda/emulator.hpp"
#include "sim/core/dtype.hpp"

#define KV_KERNEL
#define KV_PLAIN_KERNEL inline
#define KV_RESIDENT(threads, blocks)
#define KV_DEVICE inline
#define KV_EVERYWHERE inline
#define KV_SHARED(type, name, count)   \
  alignas(16) static type name[count]; \
  emulator::fresh(name, sizeof name)
#define KV_UNROLL
#define KV_UNROLL_BY(n)

namespace kvroof::cuda {

struct alignas(16) Pack {
  std::uint32_t x, y, z, w;
};
struct alignas(8) Pair {
  std::uint32_t x, y;
};
struct alignas(8) float2_t {
  float x, y;
};

inline unsigned thread_x() { return emulator::thread_index.x; }
inline unsigned block_x() { return emulator::block_index.x; }
inline unsigned block_y() { return emulator::block_index.y; }
inline unsigned threads_x() { return emulator::block_size.x; }
inline unsigned blocks_x() { return emulator::grid_size.x; }
using emulator::Place;
inline void sync_block(Place place = Place::current()) { emulator::sync_block(place); }
inline void sync_warp(Place place = Place::current()) { emulator::sync_warp(place); }
template <class T>
T from_lane(T v, unsigned lane, Place place = Place::current()) { return emulator::from_lane(v, lane, place); }
template <class T>
T from_lane_xor(T v, unsigned mask, Place place = Place::current()) {
  return emulator::from_lane(v, (thread_x() % 32) ^ mask, place);
}
inline std::uint32_t lanes_where(bool holds, Place place = Place::current()) { return emulator::ballot(holds, place); }
inline unsigned count_bits(std::uint32_t x) { return static_cast<unsigned>(std::popcount(x)); }
inline std::uint32_t permute_bytes(std::uint32_t x, std::uint32_t y, std::uint32_t which) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    out |= static_cast<std::uint32_t>(bytes >> (which >> (4 * i) & 7U) * 8 & 0xffU) << (8 * i);
  }
  return out;
}
inline std::uint32_t masked_xor(std::uint32_t x, std::uint32_t mask, std::uint32_t bits) { return (x & mask) ^ bits; }
inline unsigned add_atomic(unsigned* p, unsigned v) { return std::exchange(*p, *p + v); }
inline void or_atomic(std::uint32_t* p, std::uint32_t v) { *p |= v; }
inline unsigned count_between_blocks(unsigned* p) { return std::exchange(*p, *p + 1); }
inline void allow_next() {}
inline void await_previous() { emulator::await_previous(); }
inline void prefetch(const std::byte* p) { emulator::prefetch(p); }
inline void prefetch_range(const std::byte* p, unsigned bytes) {
  emulator::check_aligned(p, 16);
  for (unsigned at = thread_x() % 32 * 128; at < bytes; at += 32 * 128) prefetch(p + at);
}
inline void copy_to_shared(void* to, const void* from) { emulator::copy_async(to, from); }
inline void await_copies() { emulator::await_copies(); }
template <class T>
T load_once(const T* p) {
  emulator::check_aligned(p, sizeof(T));
  T out;
  std::memcpy(&out, p, sizeof out);
  return out;
}
inline Pack load_pack(const void* p) { return load_once(static_cast<const Pack*>(p)); }
inline Pair load_pair(const void* p) { return load_once(static_cast<const Pair*>(p)); }
inline float exp2_of(float x) { return std::exp2(x); }
inline float exp_of(float x) { return std::exp(x); }
inline float ratio_of(float a, float b) { return a / b; }
inline float higher_of(float a, float b) { return a > b ? a : b; }
inline float rsqrt_of(float x) { return 1.0F / std::sqrt(x); }
inline float half_to_float(std::uint16_t x) {
  float out = 0;
  convert_to_float(DType::kF16, reinterpret_cast<const std::byte*>(&x), {&out, 1});
  return out;
}
inline std::uint16_t float_to_half(float x) {
  std::uint16_t out = 0;
  convert_from_float(DType::kF16, {&x, 1}, reinterpret_cast<std::byte*>(&out));
  return out;
}
inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float float_of(std::uint32_t x) { return std::bit_cast<float>(x); }

}  // namespace kvroof::cuda

#endif
