// The modes `counters` and `pm`: DRAM bytes of each step, and samples against time. Nothing is recorded of kernels.
#include <dlfcn.h>
#include <fmt/format.h>
#include <time.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <exception>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "kernels/cupti/counter_readers.hpp"
#include "kernels/cupti/machine.hpp"
#include "kernels/cupti/run_profile.hpp"

namespace kvroof {
namespace {

// CUPTI holds 2000 to 3000 ranges at most.
constexpr std::size_t kStepsOfWindow = 512;
// About fourteen minutes at the sampler's interval; some 100 bytes each.
constexpr std::size_t kMostSamples = std::size_t{1} << 23;
constexpr std::string_view kRangePrefix = "step ";

// The context that the runtime made current in this thread; null where there is none.
void* current_context() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  auto* const current = reinterpret_cast<int (*)(void**)>(dlsym(driver, "cuCtxGetCurrent"));
  void* context = nullptr;
  return current != nullptr && current(&context) == 0 ? context : nullptr;
}

std::uint64_t now_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec);
}

// CUPTI's header does not say whether the clock that was registered is that of samples too: the other one counts from
// 1970, and no machine runs that long.
std::uint64_t on_steps_clock(std::uint64_t time_ns) {
  const std::uint64_t ahead = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
  return time_ns > ahead ? time_ns - ahead : time_ns;
}

// What both modes have in common: CUPTI is loaded before the device is used, and a failure ends the counting alone.
class CounterProfile : public RunProfile {
 public:
  explicit CounterProfile(bool emulated) : emulated_(emulated) {}

  void start() override {
    if (emulated_) {
      why_ = "the emulator has no counters";
      return;
    }
    auto loaded = load_cupti(this_machine());
    if (!loaded) {
      why_ = loaded.error();
      return;
    }
    cupti_ = std::move(loaded).value();
    why_ = prepare();
  }
  std::string problem() const override { return why_; }
  void attach(Backend&, ProfileSink& sink) override {
    sink_ = &sink;
    if (why_.empty()) why_ = open();
  }
  std::string finish() override {
    close();
    if (!any_) return why_.empty() ? "nothing was counted" : why_;
    if (!why_.empty()) sink_->note("counting_ended_early", why_);
    return {};
  }
  std::string lost() const override { return any_ && !why_.empty() ? "counting ended early: " + why_ : ""; }

 protected:
  // Before the device is used.
  virtual std::string prepare() { return {}; }
  virtual std::string open() = 0;
  virtual void close() = 0;
  // Whether counting was begun and has not failed.
  [[nodiscard]] bool counts() const { return why_.empty() && sink_ != nullptr; }
  void fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }
  void add(const ResolvedMetrics& metrics, std::span<const double> values, CounterRecord record) {
    for (std::size_t i = 0; i < metrics.names.size(); ++i) {
      record.name = metrics.names[i];
      record.value = values[i];
      sink_->add(record);
    }
    any_ = true;
  }
  void note_lacking(const ResolvedMetrics& metrics) {
    std::string lacking;
    for (const std::string_view quantity : metrics.lacking) {
      lacking += fmt::format("{}{}", lacking.empty() ? "" : ", ", quantity);
    }
    if (!lacking.empty()) sink_->note("not_counted", lacking);
  }

  CuptiLibrary cupti_;

 private:
  bool emulated_;
  ProfileSink* sink_ = nullptr;
  std::string why_;
  bool any_ = false;  // something was counted
};

class RangeProfile final : public CounterProfile {
 public:
  using CounterProfile::CounterProfile;

  void begin_step(std::uint32_t step) override {
    if (!counts()) return;
    open_step_ = step;
    fail(ranges_->begin(fmt::format("{}{}", kRangePrefix, step)));
  }
  void end_step(const StepRecord&) override {
    if (!counts()) return;
    open_step_.reset();
    fail(ranges_->end());
    if (counts() && ++in_window_ == kStepsOfWindow) take();
  }

 private:
  std::string open() override {
    auto ranges = open_range_counters(cupti_, current_context(), kStepsOfWindow);
    if (!ranges) return ranges.error();
    ranges_ = std::move(ranges).value();
    note_lacking(ranges_->metrics());
    return {};
  }
  void close() override {
    if (counts() && open_step_) fail(ranges_->end());  // a step that was cut: take() leaves it out
    if (counts() && in_window_ > 0) take();
    ranges_.reset();
  }
  void take() {
    in_window_ = 0;
    const auto counted = ranges_->take();
    if (!counted) return fail(counted.error());
    for (const CountedValues& range : counted.value()) {
      CounterRecord record;
      record.steps = 1;
      if (!range.range.starts_with(kRangePrefix)) return fail("CUPTI named a range that was not begun");
      const std::string_view number = std::string_view(range.range).substr(kRangePrefix.size());
      const auto [end, error] = std::from_chars(number.begin(), number.end(), record.first_step);
      if (error != std::errc()) return fail("CUPTI named a range that was not begun");
      if (open_step_ == record.first_step) continue;
      add(ranges_->metrics(), range.values, record);
    }
  }

  std::unique_ptr<RangeCounters> ranges_;
  std::size_t in_window_ = 0;
  std::optional<std::uint32_t> open_step_;
};

// A thread decodes while the run goes on: the device's buffer holds less than a long run.
class SamplingProfile final : public CounterProfile {
 public:
  using CounterProfile::CounterProfile;
  ~SamplingProfile() override { end_thread(); }
  SamplingProfile(const SamplingProfile&) = delete;
  SamplingProfile& operator=(const SamplingProfile&) = delete;

  void begin_step(std::uint32_t) override {}
  void end_step(const StepRecord&) override {}

 private:
  // Where it cannot be had, on_steps_clock() does.
  std::string prepare() override {
    static_cast<void>(cupti_.activity->use_monotonic_clock());
    return {};
  }
  std::string open() override {
    auto sampler = open_counter_sampler(cupti_, {});
    if (!sampler) return sampler.error();
    sampler_ = std::move(sampler).value();
    note_lacking(sampler_->metrics());
    if (std::string why = sampler_->start(); !why.empty()) return why;
    thread_ = std::thread([this] {
      while (problem_.empty() && !ended_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        take();
      }
    });
    return {};
  }
  void close() override {
    if (sampler_ == nullptr) return;
    end_thread();
    if (std::string why = sampler_->stop(); problem_.empty()) problem_ = std::move(why);
    if (problem_.empty()) take();
    if (!problem_.empty()) fail(problem_);
    const std::size_t metrics = sampler_->metrics().names.size();
    for (std::size_t i = 0; i < times_.size(); ++i) {
      CounterRecord record;
      record.time_ns = times_[i];
      add(sampler_->metrics(), std::span<const double>(values_).subspan(i * metrics, metrics), record);
    }
    sampler_.reset();
  }
  void end_thread() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Of the thread, and after its end: nothing is thrown, for that would end the program.
  void take() {
    try {
      const auto taken = sampler_->take();
      if (!taken) {
        problem_ = taken.error();
        return;
      }
      for (const CountedValues& sample : taken.value()) {
        values_.insert(values_.end(), sample.values.begin(), sample.values.end());
        times_.push_back(on_steps_clock(sample.start_ns + (sample.end_ns - sample.start_ns) / 2));
      }
      if (times_.size() >= kMostSamples) {
        problem_ = fmt::format("after {} samples, the most that are kept", times_.size());
      }
    } catch (const std::exception& failed) {
      problem_ = failed.what();
    }
  }

  std::unique_ptr<CounterSampler> sampler_;
  std::thread thread_;
  std::atomic<bool> ended_{false};
  std::vector<std::uint64_t> times_;  // the middle of each sample
  std::vector<double> values_;        // of each sample, its metrics in order
  std::string problem_;
};

}  // namespace

std::unique_ptr<RunProfile> make_counter_profile(bool emulated) { return std::make_unique<RangeProfile>(emulated); }
std::unique_ptr<RunProfile> make_sampling_profile(bool emulated) { return std::make_unique<SamplingProfile>(emulated); }

}  // namespace kvroof
