#include "kernels/cuda/emulator.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvroof::cuda::emulator {

Dim thread_index, block_index, block_size, grid_size;
int open_streams = 0;
std::size_t memory_limit = [] {
  const char* text = std::getenv("KVROOF_EMULATED_BYTES");
  return text == nullptr ? std::size_t{0} : std::size_t{std::strtoull(text, nullptr, 10)};
}();

const char* failure = nullptr;

Watcher* watcher = nullptr;
std::vector<const std::byte*>* prefetched = nullptr;

bool backwards = std::getenv("KVROOF_EMULATED_BACKWARDS") != nullptr;

namespace {

unsigned in_order(unsigned i, unsigned count) { return backwards ? count - 1 - i : i; }

std::deque<std::function<void()>> g_later;
std::uint64_t g_asked_later = 0;

}  // namespace

void later(std::function<void()> copy) {
  g_later.push_back(std::move(copy));
  ++g_asked_later;
}
std::uint64_t asked_later() { return g_asked_later; }
void catch_up(std::uint64_t asked) {
  while (!g_later.empty() && g_asked_later - g_later.size() < asked) {
    g_later.front()();
    g_later.pop_front();
  }
}

void begin_call() {
  if (watcher == nullptr) return;
  catch_up();
  watcher->begin_call();
}

void make(const Node& node) {
  catch_up();
  const std::uint64_t start = monotonic_ns();
  node.launch();
  if (watcher != nullptr) watcher->ran(node.number, start, monotonic_ns());
}

namespace {

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

// A thread of a block, and after it the same of the next block.
struct Fiber {
  boost::context::fiber place;         // where it goes on; empty: it was never entered
  Dim index;
  const Barrier* waits_at = nullptr;   // null: it can go on
  std::uint64_t waits_turn = 0;
  bool done = false;
  bool awaited = false;  // the launch before
  [[nodiscard]] bool waits() const { return waits_at != nullptr && waits_at->turn == waits_turn; }
};

// One block; the only one at a time.
struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barrier;
  boost::context::fiber scheduler;  // where that goes on when a fiber leaves
  std::size_t running = 0;
  std::size_t threads = 0;
  bool progress = false;
  std::string problem;             // that a fiber met: none goes on
  std::vector<const void*> fresh;  // shared memory that the block has come upon
  const std::function<void()>* kernel = nullptr;
};
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
  fiber.waits_at = nullptr;
}

void start(Block& block, unsigned threads) {
  if (block.fibers.size() < threads) block.fibers.resize(threads);
  block.threads = threads;
  block.fresh.clear();
  block.warps.resize((threads + kWarp - 1) / kWarp);
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

void run_block(Block& block, unsigned threads) {
  start(block, threads);
  for (bool alive = true; alive;) {
    alive = false;
    block.progress = false;
    for (unsigned i = 0; i < threads; ++i) {
      const unsigned t = in_order(i, threads);
      if (block.fibers[t].done) continue;
      alive = true;
      if (block.fibers[t].waits()) continue;
      block.running = t;
      thread_index = block.fibers[t].index;
      resume(block.fibers[t]);
      if (!block.problem.empty()) stop(block, std::exchange(block.problem, {}));
    }
    if (!alive || block.progress) continue;
    stop(block, "threads of a block wait for each other in different places");
  }
}

}  // namespace

void run(Dim grid, Dim block_dim, const std::function<void()>& kernel) {
  static Block block;  // its stacks are kept
  block.kernel = &kernel;
  g_block = &block;
  grid_size = grid;
  block_size = block_dim;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = {in_order(x, grid.x), in_order(y, grid.y), in_order(z, grid.z)};
        run_block(block, block_dim.x * block_dim.y * block_dim.z);
      }
    }
  }
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

void await_previous() { g_block->fibers[g_block->running].awaited = true; }
void check_awaited() {
  if (!g_block->fibers[g_block->running].awaited) {
    throw std::logic_error("a thread of a kernel ends without having waited for the launch before");
  }
}

void fresh(void* shared, std::size_t bytes) {
  std::vector<const void*>& known = g_block->fresh;
  if (std::find(known.begin(), known.end(), shared) != known.end()) return;
  known.push_back(shared);
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
