// Copies from memory of the host that the device makes by itself, while the host goes on.
#pragma once

#include "kernels/cuda/kernels.hpp"

namespace kvroof::cuda {

// Such memory ("pinned"). Null, or why there is none, as in all that follows.
const char* allocate_pinned(std::size_t bytes, void** out);
void release_pinned(void* memory);
// Copies `rows` runs of `bytes`, which lie behind each other in pinned memory, to where they begin `pitch` bytes apart.
// Returns at once: the memory may change when a mark that was set afterwards has been reached.
const char* copy_in_later(Stream& stream, void* to, std::size_t pitch, const void* from, std::size_t bytes,
                          std::size_t rows);
// A place in what a stream is asked for (a CUDA event): set after all of it so far, and waited for by the host.
const char* make_mark(void** mark);
const char* set_mark(Stream& stream, void* mark);
const char* wait_for(void* mark);
void release_mark(void* mark);

}  // namespace kvroof::cuda
