// The modes `counters` and `pm`: DRAM bytes of steps or operators, and samples against time. Nothing is recorded of
// kernels.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/cupti/counter_readers.hpp"
#include "kernels/cupti/machine.hpp"
#include "kernels/cupti/run_profile.hpp"
#include "sim/core/monotonic.hpp"

namespace kvroof {
namespace {

// CUPTI holds 2000 to 3000 ranges at most.
constexpr std::size_t kRangesOfWindow = 1024;
// Some 600 steps of a model of 32 layers. Each has a row for each metric in the trace.
constexpr std::size_t kMostOperators = std::size_t{1} << 17;
// About fourteen minutes at the sampler's interval; some 100 bytes each.
constexpr std::size_t kMostSamples = std::size_t{1} << 23;

// A function of the driver that the process has loaded; null where it has none.
template <class F>
F* driver_function(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : function_of<F>(driver, name);
}

// The context that the runtime made current in this thread; null where there is none.
void* current_context() {
  auto* const current = driver_function<int(void**)>("cuCtxGetCurrent");
  void* context = nullptr;
  return current != nullptr && current(&context) == 0 ? context : nullptr;
}

// Until all that was launched has run. Empty, or why it cannot be waited for.
std::string wait_for_device() {
  static auto* const synchronize = driver_function<int()>("cuCtxSynchronize");
  if (synchronize == nullptr) return "the driver has no cuCtxSynchronize";
  const int answer = synchronize();
  return answer == 0 ? "" : fmt::format("waiting for the device: the driver answers {}", answer);
}

// CUPTI's header does not say whether the clock that was registered is that of samples too: the other one counts from
// 1970, and no machine runs that long.
std::uint64_t on_steps_clock(std::uint64_t time_ns) {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const std::uint64_t ahead =
      static_cast<std::uint64_t>(std::chrono::nanoseconds(since_1970).count()) - monotonic_ns();
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
    if (sink_ != nullptr && not_numbers_ > 0) sink_->note("values_not_numbers", std::to_string(not_numbers_));
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
  // A quotient of counters that stood still is no number: it is left out, its neighbours are not.
  void add(const ResolvedMetrics& metrics, std::span<const double> values, CounterRecord record) {
    for (std::size_t i = 0; i < metrics.names.size(); ++i) {
      if (!std::isfinite(values[i])) {
        ++not_numbers_;
        continue;
      }
      record.name = metrics.names[i];
      record.value = values[i];
      sink_->add(record);
    }
    any_ = true;
  }
  // A device that counts has at least cycles: where every value is 0, nothing was measured.
  static bool moves(std::span<const double> values) {
    return std::any_of(values.begin(), values.end(), [](double v) { return std::isfinite(v) && v != 0; });
  }
  void fail_still() { fail("the device counted nothing: every value is 0"); }
  void note(std::string_view key, std::string_view value) { sink_->note(key, value); }
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
  std::uint64_t not_numbers_ = 0;
};

// Of steps or of the launches in them. Ranges have names of their own, by which CUPTI gives them back.
class RangeProfile final : public CounterProfile, private LaunchObserver {
 public:
  RangeProfile(bool emulated, CountedRange counted) : CounterProfile(emulated), counted_(counted) {}

  void attach(Backend& backend, ProfileSink& sink) override {
    CounterProfile::attach(backend, sink);
    if (!counts()) return;
    sink.note("counted_ranges", by_operator() ? "operator: each launch by itself, without CUDA graphs" : "step");
    if (!by_operator()) return;
    backend_ = &backend;
    backend.set_observer(this);
  }
  void begin_step(std::uint32_t step) override {
    if (!counts()) return;
    open_step_ = step;
    if (!by_operator()) return begin(fmt::format("step {}", step), {});
    if (operators_ < kMostOperators) return;
    if (!places_.empty()) take();
    fail(fmt::format("after {} operators, the most that are counted one by one", operators_));
  }
  void end_step(const StepRecord&) override {
    if (!counts()) return;
    open_step_.reset();
    if (!by_operator()) end();
  }
  std::string finish() override {
    if (backend_ != nullptr) backend_->set_observer(nullptr);
    return CounterProfile::finish();
  }

 private:
  void begin_launch(const LaunchMeaning& meaning) override {
    if (!counts() || !open_step_) return;
    CounterRecord place;
    place.layer = meaning.layer;
    place.operation = meaning.operation;
    place.declared_bytes = meaning.declared.bytes.total();
    const std::string layer = meaning.layer < 0 ? "" : fmt::format(" layer {}", meaning.layer);
    fail(wait_for_device());
    begin(fmt::format("step {}{} {} #{}", *open_step_, layer, meaning.operation, operators_), place);
    ++operators_;
  }
  void end_launch() override {
    if (!counts() || !in_range_) return;
    fail(wait_for_device());
    end();
  }
  void begin_capture() override {}
  void end_capture() override {}
  void begin_graph_launch(std::span<const LaunchMeaning>) override {}
  [[nodiscard]] bool one_by_one() const override { return true; }

  [[nodiscard]] bool by_operator() const { return counted_ == CountedRange::kOperator; }
  std::string open() override {
    auto ranges = open_range_counters(cupti_, current_context(), kRangesOfWindow);
    if (!ranges) return ranges.error();
    ranges_ = std::move(ranges).value();
    note_lacking(ranges_->metrics());
    if (ranges_->most_ranges() < kRangesOfWindow) note("ranges_of_window", std::to_string(ranges_->most_ranges()));
    return {};
  }
  void close() override {
    if (counts() && in_range_) fail(ranges_->end());
    in_range_ = false;
    if (counts() && !places_.empty()) take();
    ranges_.reset();
  }
  void begin(const std::string& name, CounterRecord place) {
    if (!counts()) return;
    place.first_step = *open_step_;
    place.steps = 1;
    places_.emplace(name, place);
    in_range_ = true;
    fail(ranges_->begin(name));
  }
  void end() {
    in_range_ = false;
    if (!counts()) return;
    fail(ranges_->end());
    if (counts() && places_.size() == ranges_->most_ranges()) take();
  }
  void take() {
    const auto counted = ranges_->take();
    if (!counted) return fail(counted.error());
    const std::vector<CountedValues>& ranges = counted.value();
    moved_ = moved_ || std::any_of(ranges.begin(), ranges.end(), [](const auto& r) { return moves(r.values); });
    if (!moved_ && !ranges.empty()) return fail_still();
    for (const CountedValues& range : ranges) {
      const auto place = places_.find(range.range);
      if (place == places_.end()) return fail("CUPTI named a range that was not begun");
      if (!by_operator() && open_step_ == place->second.first_step) continue;  // it was cut
      add(ranges_->metrics(), range.values, place->second);
    }
    if (ranges.size() < places_.size()) {
      fail(fmt::format("CUPTI gave back {} of {} ranges", ranges.size(), places_.size()));
    }
    places_.clear();
  }

  CountedRange counted_;
  Backend* backend_ = nullptr;
  std::unique_ptr<RangeCounters> ranges_;
  std::map<std::string, CounterRecord> places_;  // of the window's ranges
  std::optional<std::uint32_t> open_step_;
  bool in_range_ = false;
  bool moved_ = false;  // a value was not 0
  std::size_t operators_ = 0;
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
    begun_ns_ = monotonic_ns();
    if (std::string why = sampler_->start(); !why.empty()) return why;
    try {
      thread_ = std::thread([this] {
        while (problem_.empty() && !ended_) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          take();
        }
      });
    } catch (const std::system_error& refused) {
      static_cast<void>(sampler_->stop());
      return fmt::format("no thread to take samples: {}", refused.what());
    }
    return {};
  }
  void close() override {
    if (sampler_ == nullptr) return;
    end_thread();
    if (std::string why = sampler_->stop(); problem_.empty()) problem_ = std::move(why);
    if (problem_.empty()) take();
    if (!problem_.empty()) fail(problem_);
    if (dropped_ > 0) note("samples_dropped", std::to_string(dropped_));
    if (!times_.empty() && !moves(values_)) {
      fail_still();
      times_.clear();
    }
    move_to_steps_clock();
    const std::size_t metrics = sampler_->metrics().names.size();
    for (std::size_t i = 0; i < times_.size(); ++i) {
      CounterRecord record;
      record.time_ns = times_[i];
      add(sampler_->metrics(), std::span<const double>(values_).subspan(i * metrics, metrics), record);
    }
    sampler_.reset();
  }
  // CUPTI's header does not say of what clock samples are. Where that is neither of the host's, the first is taken to
  // be of the moment when sampling began: true to what a start takes, some milliseconds.
  void move_to_steps_clock() {
    constexpr std::uint64_t kMargin = 50'000'000;
    if (times_.empty()) return;
    const std::uint64_t now = monotonic_ns();
    if (times_.front() + kMargin >= begun_ns_ && times_.back() <= now + kMargin) return;
    const std::uint64_t by = begun_ns_ - times_.front();  // modulo 2^64, as the sum below
    for (std::uint64_t& time : times_) time += by;
    note("samples_clock", "the device's own: the first sample was taken to be of the moment when sampling began");
  }
  void end_thread() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Of the thread, and after its end: nothing is thrown, for that would end the program.
  void take() {
    try {
      const TakenSamples taken = sampler_->take();
      problem_ = taken.why;
      dropped_ += taken.dropped;
      for (const CountedValues& sample : taken.samples) {
        values_.insert(values_.end(), sample.values.begin(), sample.values.end());
        times_.push_back(on_steps_clock(sample.start_ns + (sample.end_ns - sample.start_ns) / 2));
      }
      if (problem_.empty() && times_.size() >= kMostSamples) {
        problem_ = fmt::format("after {} samples, the most that are kept", times_.size());
      }
    } catch (const std::exception& failed) {
      problem_ = failed.what();
    }
  }

  std::unique_ptr<CounterSampler> sampler_;
  std::thread thread_;
  std::atomic<bool> ended_{false};
  std::uint64_t begun_ns_ = 0;
  std::vector<std::uint64_t> times_;  // the middle of each sample
  std::vector<double> values_;        // of each sample, its metrics in order
  std::uint64_t dropped_ = 0;         // samples that were not read
  std::string problem_;
};

}  // namespace

std::unique_ptr<RunProfile> make_counter_profile(bool emulated, CountedRange range) {
  return std::make_unique<RangeProfile>(emulated, range);
}
std::unique_ptr<RunProfile> make_sampling_profile(bool emulated) { return std::make_unique<SamplingProfile>(emulated); }

}  // namespace kvroof
