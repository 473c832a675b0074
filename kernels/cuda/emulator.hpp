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
#include <utility>
#include <vector>

#include "sim/core/monotonic.hpp"

namespace kvroof::cuda::emulator {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

// Of the running fiber.
extern Dim thread_index, block_index, block_size, grid_size;

// Where in the kernels something is asked for.
using Place = std::source_location;

// Runs `kernel` once for every thread of every block. Throws std::logic_error for what a device does not define.
void run(Dim grid, Dim block, const std::function<void()>& kernel);

// Streams that are not closed yet.
extern int open_streams;

// What the device's memory holds at most; 0: no limit. At the start KVROOF_EMULATED_BYTES of the environment says it.
extern std::size_t memory_limit;

// What the device answers for good, as one that has lost its memory does; null: nothing is wrong.
extern const char* failure;

// Blocks, and the threads of each between two barriers, run one after the other, which a device promises of neither.
// True: the last comes first, so that what depends on their order shows. At the start whether
// KVROOF_EMULATED_BACKWARDS is in the environment says it.
extern bool backwards;

// Told of what the host asks for and of when it ran, by the host's steady clock; null: nobody is.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual std::uint64_t noted() = 0;                     // a launch joined a train: the number of its node
  virtual std::uint64_t cloned(std::uint64_t node) = 0;  // when the train is made ready, each node gets a new one
  virtual void begin_call() = 0;                         // what ran until the next one was asked for by one call
  virtual void ran(std::uint64_t node, std::uint64_t start_ns, std::uint64_t end_ns) = 0;  // node 0: in no train
  virtual void copied(bool to_device, std::size_t bytes, std::uint64_t start_ns, std::uint64_t end_ns) = 0;
};
extern Watcher* watcher;

// Copies that the host does not wait for are made as late as they may be, so that memory which changes too early shows.
void later(std::function<void()> copy);
std::uint64_t asked_later();  // copies until now
void catch_up(std::uint64_t asked = ~std::uint64_t{0});

// Launches in order, made or noted in the stream's train.
struct Node {
  std::uint64_t number = 0;
  std::function<void()> launch;
};
using Train = std::vector<Node>;
void make(const Node& node);
// Tells the watcher of a call that launches. Copies that were asked for before it are not of this call.
void begin_call();
template <class Stream>
void submit(Stream& stream, std::function<void()> launch) {
  if (stream.recording != nullptr) {
    const std::uint64_t number = watcher != nullptr ? watcher->noted() : 0;
    return static_cast<Train*>(stream.recording)->push_back({number, std::move(launch)});
  }
  begin_call();
  make({0, std::move(launch)});
}

// What a stream's handle points to: a library that is given it puts its launches there.
class LaunchQueue {
 public:
  virtual ~LaunchQueue() = default;
  virtual void submit(std::function<void()> launch) = 0;
};

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
