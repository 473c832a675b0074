// Counters and samples, read from a made profiler that knows the real one's order of calls.
#include "kernels/cupti/counter_readers.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/cupti/step_clock.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

#if defined(KVROOF_MADE_PROFILER)

// The made library, fresh.
class Made {
 public:
  Made() {
    library_.handle = dlopen(KVROOF_MADE_PROFILER, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library_.handle != nullptr);
    library_.path = "made";
    call<void()>("made_reset")();
  }
  template <class F>
  F* call(const char* name) const {
    auto* const function = reinterpret_cast<F*>(dlsym(library_.handle, name));
    REQUIRE(function != nullptr);
    return function;
  }
  void refuse(const char* function, int result) { call<void(const char*, int)>("made_refuse")(function, result); }
  void move(double bytes) { call<void(double)>("made_move")(bytes); }
  void sample(std::uint64_t start, std::uint64_t end, double value) {
    call<void(std::uint64_t, std::uint64_t, double)>("made_sample")(start, end, value);
  }
  int open() { return call<int()>("made_open")(); }
  const CuptiLibrary& library() const { return library_; }
  void* context() { return this; }

 private:
  CuptiLibrary library_;
};

#endif

}  // namespace

#if defined(KVROOF_MADE_PROFILER)

TEST_CASE("Each range brings what the device counted between its two ends, window after window") {
  // Also where a range profiler can be configured only once.
  setenv("MADE_CUPTI", GENERATE("", "one_configuration=1"), 1);
  Made made;
  {
    auto opened = open_range_counters(made.library(), made.context(), 4);
    REQUIRE(opened.ok());
    RangeCounters& ranges = *opened.value();
    CHECK(ranges.metrics().names.front() == "dram__bytes_read.sum");
    for (const std::uint32_t window : {0U, 1U}) {
      for (const std::uint32_t i : {0U, 1U, 2U}) {
        REQUIRE(ranges.begin(fmt::format("step {}", 3 * window + i)).empty());
        made.move(100 * (i + 1) + window);
        REQUIRE(ranges.end().empty());
        made.move(1e9);  // between ranges
      }
      const auto counted = ranges.take();
      REQUIRE(counted.ok());
      REQUIRE(counted.value().size() == 3);
      CHECK(counted.value()[2].range == fmt::format("step {}", 3 * window + 2));
      REQUIRE(counted.value()[2].values.size() == ranges.metrics().names.size());
      CHECK(counted.value()[2].values[0] == 300 + window);
      CHECK(counted.value()[2].values[1] == 2 * (300 + window));
    }
    CHECK(made.open() > 0);
  }
  CHECK(made.open() == 0);  // everything was ended, in order
  unsetenv("MADE_CUPTI");
}

TEST_CASE("Where CUPTI takes no image of so many ranges it gets one of half as many, and half again, down to a least") {
  for (const std::string call : {"sized_ranges", "image_ranges", "configured_ranges"}) {
    INFO(call);
    setenv("MADE_CUPTI", (call + "=300").c_str(), 1);
    Made made;
    {
      const auto opened = open_range_counters(made.library(), made.context(), 1024);
      REQUIRE(opened.ok());
      RangeCounters& ranges = *opened.value();
      CHECK(ranges.most_ranges() == 256);
      for (int i = 0; i < 256; ++i) {
        REQUIRE(ranges.begin(std::to_string(i)).empty());
        made.move(i);
        REQUIRE(ranges.end().empty());
      }
      const auto counted = ranges.take();
      REQUIRE(counted.ok());
      REQUIRE(counted.value().size() == 256);
      CHECK(counted.value()[255].values[0] == 255);
    }
    CHECK(made.open() == 0);
    setenv("MADE_CUPTI", (call + "=" + std::to_string(kFewestRanges)).c_str(), 1);
    CHECK(open_range_counters(made.library(), made.context(), 1024).value()->most_ranges() == kFewestRanges);
    setenv("MADE_CUPTI", (call + "=1").c_str(), 1);
    const auto none = open_range_counters(made.library(), made.context(), 1024);
    REQUIRE_FALSE(none.ok());
    CHECK(none.error().find("made (8)") != std::string::npos);  // out of memory
    CHECK(made.open() == 0);
  }
  unsetenv("MADE_CUPTI");
}

TEST_CASE("Ranges that CUPTI dropped, and work that it wants again, end the counting with a reason") {
  for (const bool one_pass : {true, false}) {
    Made made;
    made.call<void(bool)>("made_one_pass")(one_pass);
    const auto ranges = open_range_counters(made.library(), made.context(), 2);
    REQUIRE(ranges.ok());
    for (int i = 0; i < 3; ++i) {
      REQUIRE(ranges.value()->begin("step").empty());
      REQUIRE(ranges.value()->end().empty());
    }
    const auto counted = ranges.value()->take();
    REQUIRE_FALSE(counted.ok());
    CHECK(counted.error().find(one_pass ? "CUPTI dropped 1 ranges" : "a step runs only once") != std::string::npos);
  }
}

TEST_CASE("What keeps a device from being counted is said, and nothing stays begun") {
  struct Case {
    const char* function;
    int result;
    const char* said;
  };
  const Case cases[] = {{"cuptiProfilerInitialize", 999, "starting the profiler: made (999)"},
                        {"cuptiProfilerDeviceSupported", 0, "the device cannot be counted: confidential computing"},
                        {"cuptiProfilerGetCounterAvailability", 35, "counters need root or CAP_PERFMON"},
                        {"cuptiRangeProfilerEnable", 26, "another profiler or a monitor such as DCGM"},
                        {"cuptiRangeProfilerSetConfig", 7, "configuring ranges"},
                        {"cuptiRangeProfilerStart", 35, "starting to count"},
                        {"cuptiProfilerHostInitialize", 1, "opening chip GH100"}};
  for (const Case& c : cases) {
    INFO(c.function);
    Made made;
    made.refuse(c.function, c.result);
    const auto ranges = open_range_counters(made.library(), made.context(), 8);
    REQUIRE_FALSE(ranges.ok());
    INFO(ranges.error());
    CHECK(ranges.error().find(c.said) != std::string::npos);
    CHECK(made.open() == 0);
  }
  Made made;
  made.call<void(std::size_t)>("made_passes")(2);
  CHECK(open_range_counters(made.library(), made.context(), 8).error().find("in 2 passes") != std::string::npos);
  CHECK(open_range_counters({}, made.context(), 8).ok() == false);  // a library without a profiler
}

TEST_CASE("Samples come in order with their times, more than one image holds, without the first of all") {
  Made made;
  {
    SamplingOptions options;
    options.most_samples = 10;
    auto opened = open_counter_sampler(made.library(), options);
    REQUIRE(opened.ok());
    CounterSampler& sampler = *opened.value();
    made.sample(1, 2, 3);  // not started: nobody samples
    REQUIRE(sampler.start().empty());
    for (std::uint32_t i = 0; i < 35; ++i) made.sample(100 * i, 100 * i + 100, i);
    TakenSamples taken = sampler.take();
    CHECK((taken.why.empty() && taken.dropped == 0));
    REQUIRE(taken.samples.size() == 34);
    for (std::uint32_t i = 0; i < 34; ++i) {
      CHECK(taken.samples[i].start_ns == 100 * (i + 1));
      CHECK(taken.samples[i].end_ns == 100 * (i + 1) + 100);
      CHECK(taken.samples[i].values[0] == i + 1);
    }
    made.sample(5000, 5100, 50);
    REQUIRE(sampler.stop().empty());
    taken = sampler.take();
    REQUIRE(taken.samples.size() == 1);  // the first is left out once
  }
  CHECK(made.open() == 0);
}

TEST_CASE("What was sampled before an image or a sample fails is kept, and what is dropped is counted") {
  struct Case {
    const char* wishes;
    std::size_t kept, dropped;
    const char* why;
  };
  // 35 samples in images of 10, of which the very first is left out.
  const Case cases[] = {
      {"bad_image=3", 19, 0, "CUPTI, decoding samples: made (999)"},
      {"bad_sample=27", 25, 4, "CUPTI, decoding a sample: made (999); 4 samples of its image were dropped"},
      {"bad_sample=21", 19, 10, "CUPTI, decoding a sample: made (999); 10 samples of its image were dropped"},
      {"overflow_after=15", 29, 0, "the device's buffer of 536870912 bytes overflowed: samples were lost"}};
  SamplingOptions options;
  options.most_samples = 10;
  for (const Case& c : cases) {
    INFO(c.wishes);
    setenv("MADE_CUPTI", c.wishes, 1);
    Made made;
    const auto sampler = open_counter_sampler(made.library(), options);
    REQUIRE(sampler.ok());
    REQUIRE(sampler.value()->start().empty());
    for (std::uint32_t i = 0; i < 35; ++i) made.sample(100 * i, 100 * i + 100, i);
    const TakenSamples taken = sampler.value()->take();
    REQUIRE(taken.samples.size() == c.kept);
    CHECK(taken.samples.back().values[0] == static_cast<double>(c.kept));
    CHECK(taken.dropped == c.dropped);
    CHECK(taken.why == c.why);
  }
  unsetenv("MADE_CUPTI");
}

TEST_CASE("A buffer of the device that overflows, and permissions that lack, end the sampling with a reason") {
  {
    Made made;
    auto sampler = open_counter_sampler(made.library(), {});
    REQUIRE(sampler.ok());
    REQUIRE(sampler.value()->start().empty());
    made.call<void()>("made_overflow")();
    CHECK(sampler.value()->take().why.find("overflowed") != std::string::npos);
  }
  Made refused;
  refused.refuse("cuptiPmSamplingGetCounterAvailability", 35);
  CHECK(open_counter_sampler(refused.library(), {}).error().find("CAP_PERFMON") != std::string::npos);
}

#else

TEST_CASE("Counters are read from a made profiler") { std::puts("SKIPPED: built without CUPTI's headers"); }

#endif

TEST_CASE("A moment of one run is the same share of the same step in another run, outside of steps it is none") {
  const StepTimes from = {{100, 200}, {300, 500}}, to = {{1000, 1300}, {2000, 2100}};
  CHECK(same_moment(from, to, 150) == 1150);
  CHECK(same_moment(from, to, 300) == 2000);
  CHECK(same_moment(from, to, 450) == 2075);
  CHECK(same_moment(from, to, 50) == std::nullopt);
  CHECK(same_moment(from, to, 250) == std::nullopt);
  CHECK(same_moment(from, to, 500) == std::nullopt);
  CHECK(same_moment(from, {{1000, 1300}}, 450) == std::nullopt);
}
