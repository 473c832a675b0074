// Runs device code on the host, a fiber a thread and block after block, so that kernels are tested without a GPU.
//
// Only what the kernels use is here: indices, barriers, shuffles, ballots and atomics. Blocks run one after the other
// in ascending order; a block whose threads wait for each other in different places is reported, not left hanging.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace kvroof::cuda::emulator {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

// Of the running fiber.
extern Dim thread_index, block_index, block_size, grid_size;

// Runs `kernel` once for every thread of every block. Throws std::logic_error when threads of a block wait for each
// other in different places.
void run(Dim grid, Dim block, const std::function<void()>& kernel);

// What the device's memory holds at most; 0: no limit. At the start KVROOF_EMULATED_BYTES of the environment says it.
extern std::size_t memory_limit;

// Launches in order, made or noted in the stream's train.
using Train = std::vector<std::function<void()>>;
template <class Stream>
void submit(Stream& stream, std::function<void()> launch) {
  if (stream.recording == nullptr) return launch();
  static_cast<Train*>(stream.recording)->push_back(std::move(launch));
}

void sync_block();
void sync_warp();
// Bytes that the lanes of a warp hand to each other: `value` of this lane goes in, that of `lane` comes out.
void exchange(const void* value, void* out, unsigned lane, std::size_t size);
std::uint32_t ballot(bool predicate);
// The same for all lanes at once: calls `read` with the values of the 32 lanes, kLargestExchange bytes apart.
inline constexpr std::size_t kLargestExchange = 32;
void exchange_all(const void* value, std::size_t size, const std::function<void(const std::byte* lanes)>& read);

template <class T>
T from_lane(T value, unsigned lane) {
  T out;
  exchange(&value, &out, lane, sizeof(T));
  return out;
}

}  // namespace kvroof::cuda::emulator
