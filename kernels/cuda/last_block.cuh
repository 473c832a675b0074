// Work that blocks share: the one that finishes the last part goes on with what all of them made.
#pragma once

#include "kernels/cuda/device.cuh"

namespace kvroof::cuda {

// Counts a part that this block has finished; for all of its threads. The block that finishes the last of `parts`
// calls last(), which sees what all blocks wrote of theirs. `before` is shared memory.
template <class Last>
KV_DEVICE void finish_part(unsigned* finished, unsigned parts, unsigned* before, const Last& last) {
  sync_block();
  bool is_last = parts == 1;  // no other block has any
  if (parts > 1) {
    if (thread_x() == 0) *before = count_between_blocks(finished);
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
