// Work that is split among blocks: the last one to finish goes on with what all of them made.
#pragma once

#include "kernels/cuda/device.cuh"

namespace kvroof::cuda {

// Takes a ticket for a split that this block has finished; for all of its threads. The block that finishes the last of
// `splits` calls last(), which sees what all blocks wrote of theirs. `ticket` is shared memory.
template <class Last>
KV_DEVICE void finish_split(unsigned* finished, unsigned splits, unsigned* ticket, const Last& last) {
  sync_block();
  bool is_last = splits == 1;  // no other block has any
  if (splits > 1) {
    if (thread_x() == 0) *ticket = count_between_blocks(finished);
    sync_block();
    is_last = *ticket + 1 == splits;
  }
  if (is_last) {
    last();
    if (splits > 1 && thread_x() == 0) *finished = 0;
  }
  sync_block();
}

}  // namespace kvroof::cuda
