// Records what a GPU did while a program runs: kernels, copies, launches and their meaning, from CUPTI to a sink.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cupti/activity_api.hpp"
#include "kernels/cupti/activity_decoder.hpp"
#include "kernels/cupti/device_monitor.hpp"
#include "traces/kernel_records.hpp"

namespace kvroof {

struct ActivityOptions {
  std::size_t buffer_bytes = std::size_t{4} << 20;
  bool beside_unnamed = false;     // also where a client without a name has CUPTI's callbacks, and may never use them
  bool shared_buffers = false;     // of all threads: where there are more of them than buffers
  std::size_t most_buffers = 64;   // of the host; when all are full, CUPTI drops records, which are counted
  // CUPTI 13.0 never gives back what records of kernels in CUDA graphs take of its device pool, and hands out wrong
  // times when that is used up: with 8 buffers from record 899,477 on, with its default of 250 near 25 million
  // (parca-dev/parcagpu issue 23). Recording ends at 80,000 kernels for each buffer of the pool, or earlier.
  std::size_t device_pool = 250;
  std::uint64_t most_kernels = 20'000'000;
  bool whole_graphs = false;       // one record for a launch of a graph, none for its kernels
  bool ranges = false;             // NVTX
  bool environment = false;        // clocks, power, temperature
  // Asked for them in start() where CUPTI refuses them; what it opens is read by the recorder's thread.
  std::function<Result<std::unique_ptr<DeviceMonitor>>()> open_monitor;
  std::uint32_t monitor_ms = 100;
  std::uint32_t flush_ms = 0;      // how often, at least, buffers that are not full are asked for; 0: at the end alone
  std::uint32_t process = 0;
  bool monotonic_clock = false;    // the clock of the engine's steps, instead of CUPTI's own
  GraphNodes* nodes = nullptr;     // told of graphs; must outlive the recorder
};

// One of them in a process, once: CUPTI has one subscriber, and in 13.0 a second session has wrong ids.
class ActivityRecorder final : private ActivityBuffers, private ActivityLookup {
 public:
  // Api and sink must outlive it. Between start and stop the sink is called from a thread of the recorder alone.
  ActivityRecorder(ActivityApi& api, ProfileSink& sink, const ActivityOptions& options);
  ~ActivityRecorder() override;
  ActivityRecorder(const ActivityRecorder&) = delete;
  ActivityRecorder& operator=(const ActivityRecorder&) = delete;

  // To be called before the first context and the first graph. Empty, or why nothing is recorded: the program goes on
  // without.
  std::string start();
  // What the launches of this thread until end_launch mean: a record for each cause of the bytes that they move, and
  // for each node of a graph. Texts must live until stop. Of several launches the first carries the declared bytes.
  void begin_launch(std::vector<OperatorRecord> meaning);
  void end_launch();
  // The device must have finished. Takes in what is left, and notes in the sink what was recorded and what was lost.
  void stop();
  // As stop, while the process ends: the driver may have ended before it, so that CUPTI is asked for what it has and
  // for nothing else. It keeps the buffers: the recorder must never be destroyed after.
  void leave();

  // After stop: what was taken in, and why it was less than everything (empty: it was not).
  [[nodiscard]] const ActivityCounts& counts() const { return decoder_.counts(); }
  [[nodiscard]] const std::string& ended_early() const { return ended_early_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  using Buffer = std::vector<std::byte>;
  struct Full {
    Buffer* buffer = nullptr;
    std::size_t used = 0;
  };

  std::span<std::byte> request() override;
  void complete(std::byte* buffer, std::size_t used) override;
  std::string_view text(std::uint64_t address) override;
  std::string_view call(bool driver, std::uint32_t function) override;
  std::vector<OperatorRecord> meaning(std::uint64_t external_id, std::uint32_t correlation) override;

  std::string enable_kinds();
  std::string start_writer();
  void miss(const char* what, const std::string& why);
  void miss_environment(const std::string& why);
  void disable_kinds();
  void write();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  void make_round();
  void read_monitor();
  void end_rounds();
  void take_in(std::span<const std::byte> records);
  void end_early(std::string why);
  void take_rest();
  void note_losses();

  ActivityApi& api_;
  ProfileSink& sink_;
  ActivityOptions options_;
  ActivityDecoder decoder_;
  std::vector<std::uint32_t> enabled_;  // kinds
  std::vector<std::pair<bool, std::uint32_t>> calls_;  // launching calls that are recorded: of the driver, and which
  std::string missing_;                 // kinds that this device does not give
  std::unique_ptr<DeviceMonitor> monitor_;
  std::chrono::milliseconds round_{0};  // the writer does more than write every so often; 0: it does not
  std::chrono::steady_clock::time_point next_round_;
  bool started_ = false;
  std::uint64_t dropped_ = 0;
  std::string ended_early_;  // why nothing more is taken in; of the writer
  std::thread writer_;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Buffer*> free_;
  std::vector<Full> full_;
  std::uint64_t refused_ = 0;   // requests without a buffer left
  std::uint64_t foreign_ = 0;   // buffers that came back and were never given
  bool closing_ = false;
  bool flushing_ = false;       // the writer is within CUPTI
  bool rounds_ended_ = false;   // it will not be again
  struct Meaning {
    std::vector<OperatorRecord> records;
    bool used = false;
    std::uint32_t correlation = 0;  // of the last launch that came for it
  };
  std::map<std::uint64_t, Meaning> meanings_;
  std::size_t meant_records_ = 0;       // in all of them
  std::size_t meant_since_ = 0;         // CUPTI was last asked for the records of launches
  std::uint64_t forgotten_ = 0;         // meanings that no launch came for in time
  std::uint64_t last_id_ = 0;
};

}  // namespace kvroof
