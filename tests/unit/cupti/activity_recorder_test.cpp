// The activity recorder, driven by a made CUPTI that follows the real one's rules.
#include "kernels/cupti/activity_recorder.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/cupti/activity_layout.hpp"
#include "kernels/cupti/cupti_library.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cupti/activity_bytes.hpp"
#include "tests/unit/cupti/made_cupti.hpp"
#include "tests/unit/cupti/machine.hpp"
#include "traces/null_sink.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::size_t at(const std::vector<std::string>& words, const std::string& word) {
  return static_cast<std::size_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

}  // namespace

TEST_CASE("Everything that CUPTI hands over arrives, in order, and nothing is lost") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityOptions options;
  options.buffer_bytes = 1000;  // four kernels
  options.most_buffers = 3000;
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  for (std::uint32_t i = 1; i <= 5000; ++i) cupti.launch(i, i * 100);
  recorder.stop();
  REQUIRE(sink.kernels.size() == 5000);
  for (std::uint32_t i = 1; i <= 5000; ++i) CHECK(sink.kernels[i - 1].work.correlation == i);
  CHECK(sink.names[0] == "gemv");
  CHECK(sink.notes.at("records") == "5000");
  CHECK(sink.notes.at("dropped") == "0");
  CHECK(sink.notes.size() == 2);  // nothing else to say
  CHECK(cupti.zeros);
}

TEST_CASE("Sizes of pools are set before the subscription, buffers before kinds, and all is undone in the end") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityRecorder recorder(cupti, sink, {});
  REQUIRE(recorder.start().empty());
  recorder.stop();
  recorder.stop();  // a second one does nothing
  const auto words = cupti.asked();
  CHECK(at(words, "subscribe") < at(words, "pool 250"));
  CHECK(at(words, "pool 250") < at(words, "buffers"));
  CHECK(at(words, "subscribe") < at(words, "buffers"));
  CHECK(at(words, "buffers") < at(words, "enable 10"));
  CHECK(at(words, "enable 3") == words.size());    // the kind that serialises kernels
  CHECK(at(words, "enable 51") == words.size());   // graphs as a whole would hide their kernels
  CHECK(at(words, "flush") < at(words, "disable 10"));
  CHECK(std::count(words.begin(), words.end(), "unsubscribe") == 1);
  CHECK(words.back() == "unsubscribe");
  CHECK(cupti.calls_enabled == 0);
  for (const std::string& word : words) {
    if (word.starts_with("enable ")) CHECK(at(words, "disable " + word.substr(7)) < words.size());
  }
}

TEST_CASE("Threads share buffers where that is asked for, from before the buffers are registered") {
  for (const bool shared : {false, true}) {
    MadeCupti cupti;
    KeepingSink sink;
    ActivityOptions options;
    options.shared_buffers = shared;
    ActivityRecorder recorder(cupti, sink, options);
    REQUIRE(recorder.start().empty());
    const auto words = cupti.asked();
    CHECK((at(words, "share") < at(words, "buffers")) == shared);
  }
}

TEST_CASE("While a process ends, CUPTI is asked for what it has and for nothing else") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityRecorder recorder(cupti, sink, {});
  REQUIRE(recorder.start().empty());
  cupti.launch(1, 100);
  const std::size_t before = cupti.asked().size();
  recorder.leave();
  recorder.leave();
  recorder.stop();  // it has ended
  const auto words = cupti.asked();
  const auto from = words.begin() + static_cast<std::ptrdiff_t>(before);
  CHECK(std::vector(from, words.end()) == std::vector{std::string("flush")});
  CHECK(sink.kernels.size() == 1);
  CHECK(sink.notes.at("dropped") == "0");
}

TEST_CASE("A buffer is of zeros each time that it is given, also behind what CUPTI said it had written") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityOptions options;
  options.buffer_bytes = 432;
  options.most_buffers = 1;
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  std::span<std::byte> buffer = cupti.buffers().request();
  std::fill(buffer.begin() + 216, buffer.end(), std::byte{1});
  const RecordBytes kernel = kernel_bytes(1, 2, 3).put<std::uint64_t>(104, 0);
  std::copy(kernel.bytes().begin(), kernel.bytes().end(), buffer.begin());
  cupti.buffers().complete(buffer.data(), 216);
  for (buffer = {}; buffer.empty(); buffer = cupti.buffers().request()) std::this_thread::yield();
  CHECK(std::all_of(buffer.begin(), buffer.end(), [](std::byte b) { return b == std::byte{0}; }));
  cupti.buffers().complete(buffer.data(), 0);
  recorder.stop();
  CHECK(sink.kernels.size() == 1);
}

TEST_CASE("Graphs can be recorded as a whole, ranges and clocks when they are asked for") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityOptions options;
  options.whole_graphs = options.ranges = options.environment = true;
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  const auto words = cupti.asked();
  for (const char* kind : {"enable 51", "enable 10", "enable 12", "enable 20"}) CHECK(at(words, kind) < words.size());
}

TEST_CASE("A refused subscription, buffers or kernels mean no recording, and leave nothing behind") {
  for (const char* word : {"subscribe", "buffers", "enable 10"}) {
    MadeCupti cupti;
    KeepingSink sink;
    cupti.refuse = word;
    ActivityRecorder recorder(cupti, sink, {});
    INFO(word);
    CHECK(recorder.start() == "no");
    const auto words = cupti.asked();
    const bool subscribed = std::string(word) == "buffers" || std::string(word) == "enable 10";
    CHECK(std::count(words.begin(), words.end(), "unsubscribe") == (subscribed ? 1 : 0));
    CHECK((at(words, "enable 39") == words.size()) == (at(words, "disable 39") == words.size()));
  }
}

TEST_CASE("A kind that the device does not give, or sizes of pools, are noted, and the rest is recorded") {
  for (const auto& [refused, name] :
       {std::pair("enable 49", "allocations (no)"), std::pair("enable 50", "memory pools (no)"),
        std::pair("pool 250", "sizes of pools (no)"), std::pair("calls", "launching calls")}) {
    MadeCupti cupti;
    KeepingSink sink;
    cupti.refuse = refused;
    ActivityRecorder recorder(cupti, sink, {});
    REQUIRE(recorder.start().empty());
    cupti.launch(1, 100);
    recorder.stop();
    CHECK(sink.kernels.size() == 1);
    CHECK(sink.notes.at("not_recorded") == name);
  }
}

TEST_CASE("A launch is explained by what the engine said around it, its bytes are declared once") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityRecorder recorder(cupti, sink, {});
  REQUIRE(recorder.start().empty());
  OperatorRecord meaning;
  meaning.step = 3;
  meaning.layer = 7;
  meaning.name = "attention";
  meaning.declared_bytes = 4096;
  recorder.begin_launch({meaning});
  cupti.put(external_bytes(1, 41));  // of the driver's call under the runtime's
  cupti.launch(41, 100);
  cupti.launch(42, 200);
  recorder.end_launch();
  cupti.launch(43, 300);
  recorder.stop();
  CHECK(sink.kernels.size() == 3);
  REQUIRE(sink.operators.size() == 2);
  CHECK((sink.operators[0].correlation == 41 && sink.operators[0].step == 3 && sink.operators[0].layer == 7));
  CHECK(sink.operators[0].declared_bytes == 4096);
  CHECK((sink.operators[1].correlation == 42 && sink.operators[1].declared_bytes == 0));
  CHECK(sink.operator_names[1] == "attention");
}

namespace {

class CountingSink final : public NullSink {
 public:
  using NullSink::add;
  void add(const OperatorRecord&) override { ++operators; }
  void note(std::string_view key, std::string_view) override { lost = lost || key == "meanings_lost"; }
  std::atomic<std::size_t> operators{0};
  bool lost = false;
};

}  // namespace

TEST_CASE("Launches whose records never fill a buffer keep their meanings: the records are asked for in time") {
  MadeCupti cupti;
  CountingSink sink;
  ActivityRecorder recorder(cupti, sink, {});
  REQUIRE(recorder.start().empty());
  constexpr std::size_t kNodes = 1U << 16, kLaunches = 40;  // more than are kept by half
  const std::vector<OperatorRecord> meaning(kNodes);
  std::size_t handed_over = 0;
  for (std::uint32_t i = 1; i <= kLaunches; ++i) {
    recorder.begin_launch(meaning);
    const auto words = cupti.asked();
    const auto asked = static_cast<std::size_t>(std::count(words.begin(), words.end(), "hand over"));
    const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (; asked > handed_over && sink.operators < (i - 1) * kNodes && std::chrono::steady_clock::now() < soon;) {
      std::this_thread::yield();
    }
    handed_over = asked;
    cupti.launch(i, i * 100);
    recorder.end_launch();
  }
  recorder.stop();
  CHECK(handed_over > 4);
  CHECK_FALSE(sink.lost);
  CHECK(sink.operators == kLaunches * kNodes);
}

namespace {

// A sink that is slower than the device, or has no place.
class SlowSink final : public NullSink {
 public:
  using NullSink::add;
  explicit SlowSink(KeepingSink& sink) : sink_(sink) {}
  void add(const KernelRecord& r) override {
    const std::lock_guard lock(gate);
    if (full) throw std::runtime_error("disk full");
    sink_.add(r);
  }
  void note(std::string_view key, std::string_view value) override { sink_.note(key, value); }
  std::mutex gate;    // locked: nothing gets through
  bool full = false;  // nothing more is taken

 private:
  KeepingSink& sink_;
};

}  // namespace

TEST_CASE("When the sink is too slow the buffers run out: records are dropped and counted, memory stays bounded") {
  MadeCupti cupti;
  KeepingSink kept;
  SlowSink sink(kept);
  ActivityOptions options;
  options.buffer_bytes = 216;  // one kernel
  options.most_buffers = 4;
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  {
    const std::lock_guard shut(sink.gate);
    for (std::uint32_t i = 1; i <= 100; ++i) cupti.launch(i, i * 100);
  }
  recorder.stop();
  CHECK(kept.kernels.size() == 4);
  CHECK(kept.notes.at("dropped") == "96");
  CHECK(kept.notes.at("buffers_refused") == "96");
}

TEST_CASE("Without memory for a buffer there is none, and the program goes on") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityOptions options;
  options.buffer_bytes = SIZE_MAX;
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  CHECK(cupti.buffers().request().empty());
  recorder.stop();
  CHECK(sink.notes.at("buffers_refused") == "1");
}

TEST_CASE("A sink that fails ends the recording and is named, the program and its launches go on") {
  MadeCupti cupti;
  KeepingSink kept;
  SlowSink sink(kept);
  sink.full = true;
  ActivityRecorder recorder(cupti, sink, {});
  REQUIRE(recorder.start().empty());
  for (std::uint32_t i = 1; i <= 100; ++i) cupti.launch(i, i * 100);
  recorder.stop();
  CHECK(recorder.ended_early() == "disk full");
  CHECK(kept.kernels.empty());
  CHECK(kept.notes.at("ended_early") == "disk full");
}

TEST_CASE("Recording ends well before the pool of CUPTI 13.0 is used up, and says so") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityOptions options;
  options.buffer_bytes = 2160;
  options.most_kernels = 25;
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  for (std::uint32_t i = 1; i <= 60; ++i) cupti.launch(i, i * 100);
  recorder.stop();
  CHECK(sink.kernels.size() == 30);  // the buffer that reaches the limit is the last
  CHECK(sink.notes.at("ended_early").starts_with("after 30 kernels"));
  // The smaller pool's first wrong record was number 899,477; the default pool is used up near 25,000,000.
  CHECK(80'000 * 8 < 899'477);
  CHECK(ActivityOptions{}.most_kernels <= 80'000 * ActivityOptions{}.device_pool);
}

TEST_CASE("A buffer that was never given is not read, and a size beyond a buffer's end is not believed") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityOptions options;
  options.buffer_bytes = 216;
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  std::byte foreign[8] = {};
  cupti.buffers().complete(foreign, sizeof foreign);
  const std::span<std::byte> own = cupti.buffers().request();
  const RecordBytes kernel = kernel_bytes(1, 2, 3).put<std::uint64_t>(104, 0);
  std::copy(kernel.bytes().begin(), kernel.bytes().end(), own.begin());
  cupti.buffers().complete(own.data(), 1U << 30U);
  recorder.stop();
  CHECK(sink.kernels.size() == 1);
  CHECK(sink.notes.at("buffers_unknown") == "1");
}

TEST_CASE("Many threads launch, explain and complete at once: every record arrives once") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityOptions options;
  options.buffer_bytes = 2000;
  options.most_buffers = 4000;
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < 1000; ++i) cupti.put(kernel_bytes(1, 2, t * 1000 + i).put<std::uint64_t>(104, 0));
    });
  }
  OperatorRecord meaning;
  meaning.name = "norm";
  for (int i = 0; i < 1000; ++i) {
    recorder.begin_launch({meaning});
    recorder.end_launch();
  }
  for (std::thread& thread : threads) thread.join();
  recorder.stop();
  std::vector<std::uint32_t> seen;
  for (const KernelRecord& kernel : sink.kernels) seen.push_back(kernel.work.correlation);
  std::sort(seen.begin(), seen.end());
  REQUIRE(seen.size() == 4000);
  for (std::uint32_t i = 0; i < 4000; ++i) CHECK(seen[i] == i);
}

TEST_CASE("CUPTI that is not here, or is not CUPTI, is refused in one sentence") {
  MadeMachine made;
  auto loaded = load_cupti(made.machine);
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().find('\n') == std::string::npos);
  if (loaded.error().find("this build has no CUPTI") != std::string::npos) {
    std::puts("SKIPPED: built without CUPTI's headers");
    return;
  }
  CHECK(loaded.error().find("was not found") != std::string::npos);
  made.file("/usr/local/cuda/lib64/libcupti.so.13", "not a library");
  loaded = load_cupti(made.machine);
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().find("/usr/local/cuda/lib64/libcupti.so.13 cannot be loaded") != std::string::npos);
}

// Last of its kind: from here on the process has CUPTI.
TEST_CASE("The installed CUPTI steps from record to record of a buffer as the decoder does") {
  const auto library = load_cupti(this_machine());
  if (!library || library.value().version != cupti::kApiVersion) {
    std::puts("SKIPPED: CUPTI is not here in the version of the known layout, or this build is without it");
    return;
  }
  auto* const next = reinterpret_cast<int (*)(void* buffer, std::size_t bytes, void** record)>(
      dlsym(library.value().handle, "cuptiActivityGetNextRecord"));
  REQUIRE(next != nullptr);
  std::vector<RecordBytes> records;
  for (const cupti::RecordSize& size : cupti::kRecordSizes) records.emplace_back(size.kind, size.bytes);
  std::vector<std::byte> buffer = buffer_of(records);
  void* record = nullptr;
  std::size_t at = 0;
  for (const cupti::RecordSize& size : cupti::kRecordSizes) {
    INFO("a record of kind " << size.kind);
    REQUIRE(next(buffer.data(), buffer.size(), &record) == 0);
    CHECK(record == buffer.data() + at);
    at += size.bytes;
  }
  CHECK(next(buffer.data(), buffer.size(), &record) != 0);
}
