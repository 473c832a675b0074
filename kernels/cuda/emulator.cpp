#include "kernels/cuda/emulator.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <vector>

namespace kvroof::cuda::emulator {

Dim thread_index, block_index, block_size, grid_size;
std::size_t memory_limit = [] {
  const char* text = std::getenv("KVROOF_EMULATED_BYTES");
  return text == nullptr ? std::size_t{0} : std::size_t{std::strtoull(text, nullptr, 10)};
}();

const char* failure = nullptr;

Watcher* watcher = nullptr;

bool backwards = std::getenv("KVROOF_EMULATED_BACKWARDS") != nullptr;

namespace {

unsigned in_order(unsigned i, unsigned count) { return backwards ? count - 1 - i : i; }

}  // namespace

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

namespace {

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

void make(const Node& node) {
  catch_up();
  const std::uint64_t start = now_ns();
  node.launch();
  if (watcher != nullptr) watcher->ran(node.number, start, now_ns());
}

namespace {

constexpr std::size_t kStack = 256 * 1024;
constexpr unsigned kWarp = 32;

// Threads that wait until as many as live members have arrived.
struct Barrier {
  unsigned members = 0;
  unsigned arrived = 0;
  std::uint64_t turn = 0;
};

struct Warp {
  Barrier barrier;
  std::array<std::array<std::byte, kLargestExchange>, kWarp> values;
};

// Fibers are entered by swapcontext, which asks the kernel for the signal mask, and resumed by _longjmp, which does
// not.
struct Fiber {
  ucontext_t context;
  jmp_buf place;
  bool started = false;
  std::unique_ptr<std::byte[]> stack;
  Dim index;
  bool done = false;
  bool awaited = false;  // the launch before
};

// One block; the only one at a time.
struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barrier;
  ucontext_t scheduler;
  jmp_buf scheduler_place;
  std::size_t running = 0;
  std::size_t threads = 0;
  bool progress = false;
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
void leave() {
  if (_setjmp(g_block->fibers[g_block->running].place) == 0) _longjmp(g_block->scheduler_place, 1);
}

// From the scheduler into a fiber; returns when it leaves.
void resume(Fiber& fiber) {
  if (_setjmp(g_block->scheduler_place) != 0) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  swapcontext(&g_block->scheduler, &fiber.context);
}

void wait(Barrier& barrier) {
  const std::uint64_t turn = barrier.turn;
  ++barrier.arrived;
  release_if_full(barrier);
  while (barrier.turn == turn) leave();
}

Warp& own_warp() { return g_block->warps[g_block->running / kWarp]; }

void enter() {
  (*g_block->kernel)();
  // A thread that has left is waited for no longer.
  Fiber& fiber = g_block->fibers[g_block->running];
  fiber.done = true;
  g_block->progress = true;
  --g_block->barrier.members;
  release_if_full(g_block->barrier);
  --own_warp().barrier.members;
  release_if_full(own_warp().barrier);
  leave();
}

void start_fiber(Fiber& fiber, unsigned thread) {
  if (!fiber.stack) fiber.stack = std::make_unique<std::byte[]>(kStack);
  fiber.index = {thread % block_size.x, thread / block_size.x % block_size.y, thread / (block_size.x * block_size.y)};
  fiber.done = fiber.started = fiber.awaited = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, enter, 0);
}

void start(Block& block, unsigned threads) {
  if (block.fibers.size() < threads) block.fibers.resize(threads);
  block.threads = threads;
  block.warps.resize((threads + kWarp - 1) / kWarp);
  for (unsigned t = 0; t < threads; ++t) start_fiber(block.fibers[t], t);
  block.barrier = {threads};
  for (unsigned w = 0; w < block.warps.size(); ++w) {
    block.warps[w].barrier = {std::min(kWarp, threads - w * kWarp)};
  }
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
      block.running = t;
      thread_index = block.fibers[t].index;
      resume(block.fibers[t]);
    }
    if (alive && !block.progress) throw std::logic_error("threads of a block wait for each other in different places");
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

void sync_block() { wait(g_block->barrier); }
void sync_warp() { wait(own_warp().barrier); }

void exchange(const void* value, void* out, unsigned lane, std::size_t size) {
  Warp& warp = own_warp();
  std::memcpy(warp.values[g_block->running % kWarp].data(), value, size);
  wait(warp.barrier);
  std::memcpy(out, warp.values[lane % kWarp].data(), size);
  wait(warp.barrier);
}

void exchange_all(const void* value, std::size_t size, const std::function<void(const std::byte* lanes)>& read) {
  Warp& warp = own_warp();
  std::memcpy(warp.values[g_block->running % kWarp].data(), value, size);
  wait(warp.barrier);
  read(warp.values[0].data());
  wait(warp.barrier);
}

std::uint32_t ballot(bool predicate) {
  Warp& warp = own_warp();
  warp.values[g_block->running % kWarp][0] = static_cast<std::byte>(predicate);
  wait(warp.barrier);
  std::uint32_t bits = 0;
  const std::size_t lanes = std::min<std::size_t>(kWarp, g_block->threads - g_block->running / kWarp * kWarp);
  for (std::size_t lane = 0; lane < lanes; ++lane) bits |= static_cast<std::uint32_t>(warp.values[lane][0]) << lane;
  wait(warp.barrier);
  return bits;
}

}  // namespace kvroof::cuda::emulator
