// Copies from memory of the host that the device makes by itself, while the host goes on.
#pragma once

#include <cstddef>

#include "kernels/cuda/kernels.hpp"

namespace kvroof::cuda {

// Such memory ("pinned"). Null, or why there is none, as in all that follows.
const char* allocate_pinned(std::size_t bytes, void** out);
void release_pinned(void* memory);
// Copies `rows` runs of `bytes`, which lie behind each other in pinned memory, to where they begin `pitch` bytes apart.
// Returns at once: the memory may change when an event that was recorded afterwards has been reached.
const char* copy_in_later(Stream& stream, void* to, std::size_t pitch, const void* from, std::size_t bytes,
                          std::size_t rows);
// Copies to pinned memory, and returns at once: the bytes are there when the stream is synchronized.
const char* copy_out_later(Stream& stream, void* to, const void* from, std::size_t bytes);
// A CUDA event: recorded after all that the stream was asked for so far, and waited for by the host.
const char* make_event(void** event);
const char* record_event(Stream& stream, void* event);
const char* wait_for_event(void* event);
void release_event(void* event);

// Pinned memory, owned.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  ~PinnedBuffer() { release(); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  // Room for at least so many bytes, or false: the host refuses. What was inside is lost when it has to grow.
  [[nodiscard]] bool reserve(std::size_t bytes) {
    if (bytes <= bytes_) return true;
    release();
    if (allocate_pinned(bytes, &data_) != nullptr) return false;
    bytes_ = bytes;
    return true;
  }

 private:
  void release() {
    if (bytes_ > 0) release_pinned(data_);
    data_ = nullptr;
    bytes_ = 0;
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace kvroof::cuda
