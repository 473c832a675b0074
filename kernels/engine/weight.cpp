#include "kernels/engine/weight.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "sim/core/aligned_vector.hpp"
#include "sim/core/checked.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = std::size_t{4} << 20;
constexpr std::size_t kChunk = std::size_t{1} << 14;  // elements converted through floats at a time

}  // namespace

AlignedBytes::AlignedBytes(std::size_t size) : size_(size) {
  if (size == 0) return;
  const std::size_t alignment = size >= kHugeFrom ? kHugePage : kCacheLine;
  const auto rounded = checked_add(size, alignment - 1);
  if (!rounded) throw std::bad_alloc();
  const std::size_t whole = *rounded / alignment * alignment;
  const std::align_val_t line{alignment};
  auto* memory = static_cast<std::byte*>(::operator new(whole, line));
  data_ = {memory, Free{line}};
  // Advice only: without huge pages everything works, a little slower.
  if (size >= kHugeFrom) madvise(memory, whole, MADV_HUGEPAGE);
}

void AlignedBytes::Free::operator()(std::byte* p) const { ::operator delete(p, alignment); }

void convert_elements(DType from, const std::byte* elements, std::size_t count, DType to, std::byte* out) {
  if (from == to) {
    if (count > 0) std::memcpy(out, elements, count * size_of(to));
    return;
  }
  std::vector<float> floats(std::min(count, kChunk));
  for (std::size_t at = 0; at < count; at += kChunk) {
    const std::span<float> part(floats.data(), std::min(kChunk, count - at));
    convert_to_float(from, elements + at * size_of(from), part);
    convert_from_float(to, part, out + at * size_of(to));
  }
}

}  // namespace kvroof
