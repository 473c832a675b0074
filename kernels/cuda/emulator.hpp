// Runs device code on the host, a fiber a thread and block after block, so that kernels are tested without a GPU.
//
// Only what the kernels use is here: indices, barriers, shuffles, ballots and atomics. Blocks run one after the other
// in ascending order. What a device does not define is reported: threads that wait for each other in different places,
// whether they would be left hanging or hand each other what was not meant, and a value of a lane that is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <vector>

namespace kvroof::cuda::emulator {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

// Of the running fiber.
extern Dim thread_index, block_index, block_size, grid_size;

// Where in the kernels something is asked for.
using Place = std::source_location;

struct Block;

// Runs `kernel` once for every thread of every block, the first of which may have `begun`. Throws std::logic_error for
// what a device does not define.
void run(Dim grid, Dim block, const std::function<void()>& kernel, Block* begun = nullptr);

// Runs the preamble of a kernel's first block, what its threads do before await_previous(), while launches before it
// are still to be made: an overlapping launch may be as early, and a kernel that reads there what they write, or writes
// what they read, gives other results. The block goes on in run(), which must follow with the same arguments.
Block* begin(Dim grid, Dim block, const std::function<void()>& kernel);

// What the device's memory holds at most; 0: no limit. At the start KVROOF_EMULATED_BYTES of the environment says it.
extern std::size_t memory_limit;

// What the device answers for good, as one that has lost its memory does; null: nothing is wrong.
extern const char* failure;

// Blocks, and the threads of each between two barriers, run one after the other, which a device promises of neither.
// True: the last comes first, so that what depends on their order shows. At the start whether
// KVROOF_EMULATED_BACKWARDS is in the environment says it.
extern bool backwards;

// For a load of so many bytes at once, which a device refuses from a place that is no multiple of them. Throws
// std::logic_error, which no thread of a block catches: the program ends, as it would there.
void check_aligned(const void* place, std::size_t bytes);

// Lines that kernels have brought before they load them: each is read from memory, whether it is used or not. Null:
// nobody notes them.
extern std::vector<const std::byte*>* prefetched;
void prefetch(const std::byte* line);

// Every thread of every kernel waits for the launch before (programmatic dependent launch): so a launch is over only
// when all before it are, and who waits for it waits for them.
void await_previous();
void check_awaited();

// Copies 16 aligned bytes as late as a device may: when the thread that asked waits for its copies. What is used before
// that is not there.
void copy_async(void* to, const void* from);
void await_copies();

// Shared memory that a thread comes upon: a block finds in it what other blocks and kernels left, so that at the first
// of its threads all of it becomes 0xff, of which every float is a NaN.
void fresh(void* shared, std::size_t bytes);

void sync_block(Place place = Place::current());
void sync_warp(Place place = Place::current());
// Bytes that the lanes of a warp hand to each other: `value` of this lane goes in, that of `lane` comes out.
void exchange(const void* value, void* out, unsigned lane, std::size_t size, Place place);
std::uint32_t ballot(bool predicate, Place place = Place::current());
// The same for all lanes of a full warp at once: calls `read` with the values of the 32 lanes, kLargestExchange bytes
// apart.
inline constexpr std::size_t kLargestExchange = 48;
void exchange_all(const void* value, std::size_t size, const std::function<void(const std::byte* lanes)>& read,
                  Place place);

template <class T>
T from_lane(T value, unsigned lane, Place place = Place::current()) {
  T out;
  exchange(&value, &out, lane, sizeof(T), place);
  return out;
}

}  // namespace kvroof::cuda::emulator
