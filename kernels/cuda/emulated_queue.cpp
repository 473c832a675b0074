#include "kernels/cuda/emulated_queue.hpp"

#include <deque>
#include <memory>

#include "sim/core/monotonic.hpp"

namespace kvroof::cuda::emulator {

int open_streams = 0;
Watcher* watcher = nullptr;

namespace {

// Launches that have begun while one before them runs, at most: more than a layer of a decode step has.
constexpr std::size_t kMostBegun = 8;

struct Entry {
  Work work;
  Block* begun = nullptr;
  [[nodiscard]] bool is_kernel() const { return work.grid.x > 0; }
};

std::deque<std::unique_ptr<Entry>> g_entries;
std::uint64_t g_asked = 0;

void push(Work work) {
  g_entries.push_back(std::make_unique<Entry>(Entry{std::move(work)}));
  ++g_asked;
}

// Every kernel of ours lets the next launch begin before it waits for its own turn: so the whole chain behind one that
// runs may have begun.
void begin_next(const Entry& running) {
  const Entry* before = &running;
  for (std::size_t i = 0; i < g_entries.size() && i < kMostBegun; ++i) {
    Entry& next = *g_entries[i];
    if (!before->is_kernel() || !next.is_kernel() || !next.work.overlaps) return;
    if (next.begun == nullptr) next.begun = begin(next.work.grid, next.work.block, next.work.run);
    before = &next;
  }
}

void make(Entry& entry) {
  begin_next(entry);
  const Work& work = entry.work;
  const std::uint64_t start = monotonic_ns();
  if (entry.is_kernel()) {
    run(work.grid, work.block, work.run, entry.begun);
  } else {
    work.run();
  }
  if (watcher != nullptr && work.launch) watcher->ran(work.node, start, monotonic_ns());
}

// Tells the watcher of a call that launches. What was asked for before is not of this call.
void begin_call() {
  if (watcher == nullptr) return;
  catch_up();
  watcher->begin_call();
}

// A launch that waits for all that was asked for before it, as the next one does for it.
void push_boundary() { push({.run = [] {}, .launch = false}); }

}  // namespace

void later(std::function<void()> copy) { push({.run = std::move(copy), .launch = false}); }

void submit(Stream& stream, Work launch) {
  if (stream.captured != nullptr) {
    launch.node = watcher != nullptr ? watcher->captured() : 0;
    static_cast<Graph*>(stream.captured)->push_back(std::move(launch));
    return;
  }
  begin_call();
  push(std::move(launch));
  // Whoever counts launches one by one waits for each with the driver, which is asked past the emulator.
  if (stream.handle == nullptr || stream.one_by_one) catch_up();
}

void submit_graph(const Graph& graph) {
  begin_call();
  push_boundary();
  for (const Work& launch : graph) push(launch);
  push_boundary();
}

std::uint64_t asked() { return g_asked; }

void catch_up(std::uint64_t asked) {
  while (!g_entries.empty() && g_asked - g_entries.size() < asked) {
    const std::unique_ptr<Entry> entry = std::move(g_entries.front());
    g_entries.pop_front();
    make(*entry);
  }
}

}  // namespace kvroof::cuda::emulator
