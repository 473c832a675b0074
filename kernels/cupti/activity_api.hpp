// What the activity recorder asks of CUPTI: the library does it (cupti_library.hpp), or a made one in the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/cupti/activity_decoder.hpp"

namespace kvroof {

// Gives buffers to CUPTI and takes them back; called from threads of the program and of CUPTI, at any moment between
// start and stop, and may not call CUPTI.
class ActivityBuffers {
 public:
  virtual ~ActivityBuffers() = default;
  // A buffer of zeros; empty: none is left, and CUPTI drops what it had for it.
  virtual std::span<std::byte> request() = 0;
  // A buffer comes back; `used` bytes of it hold records.
  virtual void complete(std::byte* buffer, std::size_t used) = 0;
};

// Told, in the thread that does it, of nodes that join a graph and of the copies that its instantiation makes of them:
// a record of a kernel carries the number of a copy.
class GraphNodes {
 public:
  virtual ~GraphNodes() = default;
  virtual void created(std::uint64_t node) = 0;
  virtual void cloned(std::uint64_t node, std::uint64_t from) = 0;
};

// Functions return why they failed; empty: done.
class ActivityApi {
 public:
  virtual ~ActivityApi() = default;
  // Sizes of the pools that CUPTI keeps on a device; before the first context.
  virtual std::string set_device_pool(std::size_t buffers) = 0;
  // The buffers that the recorder registers are zero, so that CUPTI need not clear them; likewise before.
  virtual std::string promise_zeroed_buffers() = 0;
  // All threads of the program write into the same buffers, instead of each into its own; before the buffers are
  // registered. A CUPTI that does not know it goes on as it does.
  virtual void share_buffers() = 0;
  // Times of all records from now on are those of CLOCK_MONOTONIC; once in a process, before the first record.
  virtual std::string use_monotonic_clock() = 0;
  // Takes the one subscription of the process. A refusal names the tool that has it.
  virtual std::string subscribe() = 0;
  // After a refusal: who has it gave CUPTI no name, as a library does that waits to be used (Kineto, in PyTorch).
  [[nodiscard]] virtual bool unnamed_has_it() const { return false; }
  virtual void unsubscribe() = 0;
  // Once in a process.
  virtual std::string set_buffers(ActivityBuffers& buffers) = 0;
  // While subscribed.
  virtual std::string watch_nodes(GraphNodes& nodes) = 0;
  virtual std::string enable(std::uint32_t kind) = 0;
  virtual void disable(std::uint32_t kind) = 0;
  virtual std::string enable_call(bool driver, std::uint32_t function) = 0;
  virtual void disable_call(bool driver, std::uint32_t function) = 0;
  // Launches of this thread between push and pop carry the id.
  virtual void push_id(std::uint64_t id) = 0;
  virtual void pop_id() = 0;
  // Hands over every buffer, also those that are not full, records in progress included. Does not wait for the device.
  virtual void flush() = 0;
  // Hands over the buffers whose records are all complete, full or not. Does not wait for the device. From any thread,
  // which is the one that gives the buffers back.
  virtual void flush_completed() = 0;
  // Records that were lost for want of a buffer since the last call.
  virtual std::uint64_t dropped() = 0;
  // Name of a function; empty: not known. Valid for ever.
  virtual std::string_view call_name(bool driver, std::uint32_t function) = 0;
  // Walks a buffer: by known sizes, unless the library has records of its own.
  virtual void walk(std::span<const std::byte> buffer, ActivityDecoder& decoder) { decoder.decode(buffer); }
};

}  // namespace kvroof
