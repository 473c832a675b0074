// AlignedVector: a std::vector that starts where a cache line does.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace kvroof {

// A vector register's worth of elements that lies across two lines costs two accesses.
inline constexpr std::size_t kCacheLine = 64;  // bytes

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  explicit CacheLineAllocator(const CacheLineAllocator<U>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{kCacheLine}));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t{kCacheLine}); }
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) { return true; }
};

template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace kvroof
