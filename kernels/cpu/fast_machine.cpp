// Kernels that measure the machine: plain reading, copying, and arithmetic in registers.
#include <array>

#include "kernels/cpu/fast_kernels.hpp"

// As in fast_rows.cpp.
#define HWY_BROKEN_EMU128 0
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fast_machine.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace kvroof::fast::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = HWY_LANES(float);

// Four streams, asked for ahead, as products of matrices read their rows: one alone reaches two thirds of what they do
// on some processors.
std::uint64_t read_sum(std::span<const std::byte> buffer) {
  using Words = hn::ScalableTag<std::uint64_t>;
  const Words d;
  constexpr std::size_t kStreams = 4, kParts = 2, kAhead = 64;  // words: eight lines
  const std::size_t lanes = hn::Lanes(d), at_once = kParts * lanes;
  const auto* p = reinterpret_cast<const std::uint64_t*>(buffer.data());
  const std::size_t count = buffer.size() / sizeof(std::uint64_t);
  const std::size_t stream = count / kStreams / at_once * at_once;
  std::array<hn::Vec<Words>, kStreams * kParts> sums;
  sums.fill(hn::Zero(d));
  for (std::size_t i = 0; i < stream; i += at_once) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      const auto* from = p + s * stream + i;
      __builtin_prefetch(from + kAhead);
      for (std::size_t part = 0; part < kParts; ++part) {
        sums[s * kParts + part] = hn::Add(sums[s * kParts + part], hn::LoadU(d, from + part * lanes));
      }
    }
  }
  for (std::size_t s = 1; s < sums.size(); ++s) sums[0] = hn::Add(sums[0], sums[s]);
  // Summed here, because a vector sum of lanes is a signed sum to the compiler, and this one wraps.
  alignas(64) std::array<std::uint64_t, HWY_LANES(std::uint64_t)> parts;
  hn::Store(sums[0], d, parts.data());
  std::uint64_t total = 0;
  for (const std::uint64_t part : parts) total += part;
  for (std::size_t i = kStreams * stream; i < count; ++i) total += p[i];
  return total;
}

void stream_copy(std::span<const std::byte> from, std::span<std::byte> to) {
  const D d;
  const auto* p = reinterpret_cast<const float*>(from.data());
  auto* q = reinterpret_cast<float*>(to.data());
  for (std::size_t i = 0; i + kLanes <= from.size() / sizeof(float); i += kLanes)
    hn::Stream(hn::Load(d, p + i), d, q + i);
}

std::uint64_t multiply_add_in_registers(std::uint64_t rounds) {
  const D d;
  constexpr std::size_t kChains = 12;  // more than latency times units of any core
  std::array<V, kChains> sums;
  for (std::size_t i = 0; i < kChains; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  const V factor = hn::Set(d, 0.5F + static_cast<float>(rounds % 2));
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (V& sum : sums) sum = hn::MulAdd(sum, factor, factor);
  }
  for (std::size_t i = 1; i < kChains; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  // No sum is negative; the comparison keeps the work from being left out.
  const bool negative = hn::GetLane(sums[0]) < 0;
  return negative ? 0 : rounds * kChains * kLanes * 2;
}

}  // namespace kvroof::fast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof::fast {

HWY_EXPORT(read_sum);
HWY_EXPORT(stream_copy);
HWY_EXPORT(multiply_add_in_registers);

std::uint64_t read_sum(std::span<const std::byte> buffer) { return HWY_DYNAMIC_DISPATCH(read_sum)(buffer); }

void stream_copy(std::span<const std::byte> from, std::span<std::byte> to) {
  HWY_DYNAMIC_DISPATCH(stream_copy)(from, to);
}

std::uint64_t multiply_add_in_registers(std::uint64_t rounds) {
  return HWY_DYNAMIC_DISPATCH(multiply_add_in_registers)(rounds);
}

}  // namespace kvroof::fast
#endif
