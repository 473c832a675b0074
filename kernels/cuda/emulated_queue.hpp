// What the host asks an emulated device for: launches, copies and graphs of launches, in their order.
//
// As on a device, none of it is done when it is asked for: it is done when the host waits for it, and what has changed
// too early by then shows. Before a launch is made, those behind it that may overlap it have begun (emulator::begin).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/emulator.hpp"
#include "kernels/cuda/kernels.hpp"

namespace kvroof::cuda::emulator {

// Streams that are not closed yet.
extern int open_streams;

// Told of what the host asks for and of when it ran, by the host's steady clock; null: nobody is.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual std::uint64_t captured() = 0;                     // a launch joined a graph: the number of its node
  virtual std::uint64_t cloned(std::uint64_t node) = 0;  // when the graph is made ready, each node gets a new one
  virtual void begin_call() = 0;                         // what ran until the next one was asked for by one call
  virtual void ran(std::uint64_t node, std::uint64_t start_ns, std::uint64_t end_ns) = 0;  // node 0: in no graph
  virtual void copied(bool to_device, std::size_t bytes, std::uint64_t start_ns, std::uint64_t end_ns) = 0;
};
extern Watcher* watcher;

// One launch, or the copies that lie between launches.
struct Work {
  std::function<void()> run = nullptr;  // a thread of a kernel of ours, or all that a library or a copy does
  Dim grid = {0, 0};          // 0: no kernel of ours
  Dim block = {};
  bool overlaps = false;      // it may begin while the launch before still runs
  bool launch = true;
  std::uint64_t node = 0;     // its number in a graph
};
using Graph = std::vector<Work>;

// A copy.
void later(std::function<void()> copy);
// A launch, made or captured in the stream's graph. One on a stream that nobody opened, or of launches one
// by one, is made at once.
void submit(Stream& stream, Work launch);
void submit_graph(const Graph& graph);

std::uint64_t asked();  // how much was asked for until now
// Does what was asked for, or the first so much of it.
void catch_up(std::uint64_t asked = ~std::uint64_t{0});

// What a stream's handle points to: a library that is given it puts its launches there.
class LaunchQueue {
 public:
  virtual ~LaunchQueue() = default;
  virtual void submit(std::function<void()> launch) = 0;
};

}  // namespace kvroof::cuda::emulator
