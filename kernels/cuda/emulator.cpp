#include "kernels/cuda/emulator.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvroof::cuda::emulator {

Dim thread_index, block_index, block_size, grid_size;
std::size_t memory_limit = [] {
  const char* text = std::getenv("KVROOF_EMULATED_BYTES");
  return text == nullptr ? std::size_t{0} : std::size_t{std::strtoull(text, nullptr, 10)};
}();

const char* failure = nullptr;

std::vector<const std::byte*>* prefetched = nullptr;

bool backwards = std::getenv("KVROOF_EMULATED_BACKWARDS") != nullptr;

namespace {

unsigned in_order(unsigned i, unsigned count) { return backwards ? count - 1 - i : i; }

constexpr std::size_t kStack = 256 * 1024;
constexpr unsigned kWarp = 32;

// Threads that wait until as many as live members have arrived.
struct Barrier {
  unsigned members = 0;
  unsigned arrived = 0;
  std::uint64_t turn = 0;
  Place place{};  // where the first of this turn arrived
};

using Lanes = std::array<std::array<std::byte, kLargestExchange>, kWarp>;

struct Warp {
  Barrier barrier;
  // What lanes hand to each other goes into one of the two in odd turns of the barrier and into the other in even ones:
  // when a turn writes to the lanes of the last but one, all have read these, for they came to the turn between.
  std::array<Lanes, 2> lanes;
  std::array<std::uint32_t, 2> handed{};  // whose values those are, a bit each
};

struct AsyncCopy {
  void* to;
  const void* from;
};

// A thread of a block, and after it the same of the next block.
struct Fiber {
  boost::context::fiber place;         // where it goes on; empty: it was never entered
  Dim index;
  const Barrier* waits_at = nullptr;   // null: it can go on
  std::uint64_t waits_turn = 0;
  bool done = false;
  bool awaited = false;  // the launch before
  std::vector<AsyncCopy> copies;  // under way
  [[nodiscard]] bool waits() const { return waits_at != nullptr && waits_at->turn == waits_turn; }
};

// Shared memory that a block has come upon.
struct SharedMemory {
  std::byte* data;
  std::size_t bytes;
};

}  // namespace

// A block that runs, or one whose preamble has run. A shared array is one memory for all blocks of its kernel.
struct Block {
  Dim grid, size, index;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barrier;
  boost::context::fiber scheduler;  // where that goes on when a fiber leaves
  std::size_t running = 0;
  std::size_t threads = 0;
  bool progress = false;
  bool early = false;           // threads stay at await_previous()
  std::string problem;          // that a fiber met: none goes on
  std::vector<SharedMemory> shared;
  std::vector<std::byte> kept;  // what was in it after the preamble
  const std::function<void()>* kernel = nullptr;
};

namespace {

Block* g_block = nullptr;

void release_if_full(Barrier& barrier) {
  if (barrier.arrived == 0 || barrier.arrived < barrier.members) return;
  barrier.arrived = 0;
  ++barrier.turn;
  g_block->progress = true;
}

// From a fiber back to the scheduler, and on from here when its turn comes.
void leave() { g_block->scheduler = std::move(g_block->scheduler).resume(); }

// A fiber that cannot go on.
void report(std::string problem) {
  g_block->problem = std::move(problem);
  leave();
}

std::string text_of(const Place& place) {
  const std::string file = place.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(place.line());
}

bool is_other(const Place& a, const Place& b) {
  const bool same_file = a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
  return a.line() != b.line() || a.column() != b.column() || !same_file;
}

// Who comes by another way than those who wait already is not who they wait for.
void wait(Barrier& barrier, const Place& place) {
  if (barrier.arrived == 0) barrier.place = place;
  if (is_other(barrier.place, place)) {
    report("threads wait for each other in different places: " + text_of(barrier.place) + " and " + text_of(place));
  }
  Fiber& fiber = g_block->fibers[g_block->running];
  fiber.waits_at = &barrier;
  fiber.waits_turn = barrier.turn;
  ++barrier.arrived;
  release_if_full(barrier);
  if (fiber.waits()) leave();
  fiber.waits_at = nullptr;
}

Warp& own_warp() { return g_block->warps[g_block->running / kWarp]; }

// What a fiber does: the kernel of one block after the other.
boost::context::fiber enter(boost::context::fiber scheduler) {
  for (g_block->scheduler = std::move(scheduler);; leave()) {
    (*g_block->kernel)();
    // A thread that has left is waited for no longer.
    g_block->fibers[g_block->running].done = true;
    g_block->progress = true;
    --g_block->barrier.members;
    release_if_full(g_block->barrier);
    --own_warp().barrier.members;
    release_if_full(own_warp().barrier);
  }
}

// Stacks whose tops lie a power of two apart would share few lines of the cache.
boost::context::fiber new_fiber() {
  boost::context::fixedsize_stack stacks(kStack);
  const boost::context::stack_context stack = stacks.allocate();
  const std::size_t unused = g_block->running % 128 * 576;
  return {std::allocator_arg,
          boost::context::preallocated(static_cast<std::byte*>(stack.sp) - unused, stack.size - unused, stack), stacks,
          enter};
}

// From the scheduler into a fiber; returns when it leaves.
void resume(Fiber& fiber) {
  if (!fiber.place) fiber.place = new_fiber();
  fiber.place = std::move(fiber.place).resume();
}

void start_thread(Fiber& fiber, unsigned thread) {
  fiber.index = {thread % block_size.x, thread / block_size.x % block_size.y, thread / (block_size.x * block_size.y)};
  fiber.done = fiber.awaited = false;
  fiber.copies.clear();
  fiber.waits_at = nullptr;
}

void start(Block& block, Dim grid, Dim size, Dim index, const std::function<void()>& kernel) {
  const unsigned threads = size.x * size.y * size.z;
  if (block.fibers.size() < threads) block.fibers.resize(threads);
  block.grid = grid;
  block.size = size;
  block.index = index;
  block.kernel = &kernel;
  block.threads = threads;
  block.early = false;
  block.shared.clear();
  block.warps.resize((threads + kWarp - 1) / kWarp);
  block_size = size;
  for (unsigned t = 0; t < threads; ++t) start_thread(block.fibers[t], t);
  block.barrier = {threads};
  for (unsigned w = 0; w < block.warps.size(); ++w) {
    block.warps[w].barrier = {std::min(kWarp, threads - w * kWarp)};
  }
}

[[noreturn]] void stop(Block& block, const std::string& problem) {
  block.fibers.clear();  // they are in the middle of this kernel
  throw std::logic_error(problem);
}

// Until all threads are done, or have come to where they stay.
void go_on(Block& block) {
  g_block = &block;
  grid_size = block.grid;
  block_size = block.size;
  block_index = block.index;
  for (bool alive = true; alive;) {
    alive = false;
    block.progress = false;
    bool stays = false;
    for (unsigned i = 0; i < block.threads; ++i) {
      const unsigned t = in_order(i, static_cast<unsigned>(block.threads));
      Fiber& fiber = block.fibers[t];
      if (fiber.done) continue;
      alive = true;
      stays = stays || (block.early && fiber.awaited);
      if (fiber.waits() || (block.early && fiber.awaited)) continue;
      block.running = t;
      thread_index = fiber.index;
      resume(fiber);
      if (!block.problem.empty()) stop(block, std::exchange(block.problem, {}));
      stays = stays || (block.early && fiber.awaited);
    }
    if (!alive || block.progress) continue;
    if (stays) return;
    stop(block, "threads of a block wait for each other in different places");
  }
}

// Blocks that are not in use: their stacks are kept.
std::vector<std::unique_ptr<Block>>& idle_blocks() {
  static std::vector<std::unique_ptr<Block>> blocks;
  return blocks;
}

std::unique_ptr<Block> take_block() {
  if (idle_blocks().empty()) return std::make_unique<Block>();
  std::unique_ptr<Block> block = std::move(idle_blocks().back());
  idle_blocks().pop_back();
  return block;
}

// Other blocks may have used the shared memory since.
void go_on_after_preamble(Block& block) {
  const std::byte* kept = block.kept.data();
  for (const SharedMemory& memory : block.shared) {
    std::memcpy(memory.data, kept, memory.bytes);
    kept += memory.bytes;
  }
  block.early = false;
  go_on(block);
}

}  // namespace

Block* begin(Dim grid, Dim block_dim, const std::function<void()>& kernel) {
  std::unique_ptr<Block> block = take_block();
  start(*block, grid, block_dim, {in_order(0, grid.x), in_order(0, grid.y), in_order(0, grid.z)}, kernel);
  block->early = true;
  go_on(*block);
  block->kept.clear();
  for (const SharedMemory& memory : block->shared) {
    block->kept.insert(block->kept.end(), memory.data, memory.data + memory.bytes);
  }
  return block.release();
}

void run(Dim grid, Dim block_dim, const std::function<void()>& kernel, Block* begun) {
  std::unique_ptr<Block> block = begun == nullptr ? take_block() : std::unique_ptr<Block>(begun);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        if (begun != nullptr && x + y + z == 0) {
          go_on_after_preamble(*block);
          continue;
        }
        start(*block, grid, block_dim, {in_order(x, grid.x), in_order(y, grid.y), in_order(z, grid.z)}, kernel);
        go_on(*block);
      }
    }
  }
  idle_blocks().push_back(std::move(block));
  g_block = nullptr;
}

void prefetch(const std::byte* line) {
  if (prefetched != nullptr) prefetched->push_back(line);
}

void check_aligned(const void* place, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(place) % bytes != 0) {
    throw std::logic_error("a load of " + std::to_string(bytes) + " bytes is not aligned to them");
  }
}

void await_previous() {
  g_block->fibers[g_block->running].awaited = true;
  if (g_block->early) leave();
}
void check_awaited() {
  if (!g_block->fibers[g_block->running].awaited) {
    throw std::logic_error("a thread of a kernel ends without having waited for the launch before");
  }
}

void copy_async(void* to, const void* from) {
  check_aligned(to, 16);
  check_aligned(from, 16);
  g_block->fibers[g_block->running].copies.push_back({to, from});
}

void await_copies() {
  std::vector<AsyncCopy>& copies = g_block->fibers[g_block->running].copies;
  for (const AsyncCopy& copy : copies) std::memcpy(copy.to, copy.from, 16);
  copies.clear();
}

void fresh(void* shared, std::size_t bytes) {
  for (const SharedMemory& known : g_block->shared) {
    if (known.data == shared) return;
  }
  g_block->shared.push_back({static_cast<std::byte*>(shared), bytes});
  std::memset(shared, 0xff, bytes);
}

void sync_block(Place place) { wait(g_block->barrier, place); }
void sync_warp(Place place) { wait(own_warp().barrier, place); }

namespace {

struct Handed {
  const Lanes& values;
  std::uint32_t by;  // lanes, a bit each
};

// Hands `value` to the lanes of the warp; what all of them have handed over.
Handed hand_over(const void* value, std::size_t size, const Place& place) {
  Warp& warp = own_warp();
  const std::size_t turn = warp.barrier.turn % 2;
  const std::size_t lane = g_block->running % kWarp;
  if (warp.barrier.arrived == 0) warp.handed[turn] = 0;
  warp.handed[turn] |= std::uint32_t{1} << lane;
  std::memcpy(warp.lanes[turn][lane].data(), value, size);
  wait(warp.barrier, place);
  return {warp.lanes[turn], warp.handed[turn]};
}

}  // namespace

void exchange(const void* value, void* out, unsigned lane, std::size_t size, Place place) {
  const Handed handed = hand_over(value, size, place);
  if ((handed.by >> lane % kWarp & 1U) == 0) report("a value of a lane that is not there: " + text_of(place));
  std::memcpy(out, handed.values[lane % kWarp].data(), size);
}

void exchange_all(const void* value, std::size_t size, const std::function<void(const std::byte* lanes)>& read,
                  Place place) {
  const Handed handed = hand_over(value, size, place);
  if (handed.by != ~std::uint32_t{0}) report("values of a warp that is not whole: " + text_of(place));
  read(handed.values[0].data());
}

std::uint32_t ballot(bool predicate, Place place) {
  const Handed handed = hand_over(&predicate, sizeof predicate, place);
  std::uint32_t bits = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const bool there = (handed.by >> lane & 1U) != 0;
    if (there && handed.values[lane][0] != std::byte{0}) bits |= std::uint32_t{1} << lane;
  }
  return bits;
}

}  // namespace kvroof::cuda::emulator
