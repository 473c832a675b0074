// Work that blocks share: the one that finishes the last part goes on with what all of them made.
#pragma once

#include "kernels/cuda/device.cuh"

namespace kvroof::cuda {

// Counts a part that this block has finished; for all of its threads. The block that finishes the last of `parts`
// calls last(), which sees what all blocks wrote of theirs. `before` is shared memory.
template <class Last>
KV_DEVICE void finish_part(unsigned* finished, unsigned parts, unsigned* before, const Last& last) {
  // The barriers put what all threads wrote before the fence of the one that counts, and what it then sees before what
  // they go on to read: a fence's effect passes on over barriers (PTX ISA, causality order).
  sync_block();
  bool is_last = parts == 1;  // no other block has any
  if (parts > 1) {
    if (thread_x() == 0) {
      fence_device();
      *before = add_atomic(finished, 1);
      if (*before + 1 == parts) fence_device();
    }
    sync_block();
    is_last = *before + 1 == parts;
  }
  if (is_last) {
    last();
    if (parts > 1 && thread_x() == 0) *finished = 0;
  }
  sync_block();
}

}  // namespace kvroof::cuda
