// The mode `trace`: activity records, explained by the engine's launches.
#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "kernels/cupti/cupti_library.hpp"
#include "kernels/cupti/explained_sink.hpp"
#include "kernels/cupti/late_sink.hpp"
#include "kernels/cupti/launch_recorder.hpp"
#include "kernels/cupti/machine.hpp"
#include "kernels/cupti/run_profile.hpp"
#include "sim/core/counted.hpp"

namespace kvroof {
namespace {

class TraceProfile final : public RunProfile {
 public:
  explicit TraceProfile(ActivityApi* device) : api_(device) {}
  ~TraceProfile() override { late_.close(); }  // before the recorder's thread is waited for
  TraceProfile(const TraceProfile&) = delete;
  TraceProfile& operator=(const TraceProfile&) = delete;

  void start() override {
    why_ = load();
    if (!why_.empty()) return;
    ActivityOptions options;
    options.monotonic_clock = options.environment = true;
    options.open_monitor = [] {
      const auto bus = pci_bus_of_device();
      return bus ? open_device_monitor(this_machine(), bus.value()) : Failure{bus.error()};
    };
    options.nodes = &launches_;
    options.process = static_cast<std::uint32_t>(getpid());
    recorder_.emplace(*api_, late_, options);
    why_ = recorder_->start();
    if (!why_.empty()) recorder_.reset();
  }

  std::string problem() const override { return recorder_ ? std::string() : why_; }

  void attach(Backend& backend, ProfileSink& sink) override {
    if (!recorder_) return;
    sink_ = &sink;
    sink.add(ProcessRecord{static_cast<std::uint32_t>(getpid()), "kvroof"});
    if (!explained_) late_.attach(explained_.emplace(sink));
    launches_.set_recorder(&*recorder_);
    backend_ = &backend;
    backend.set_observer(&launches_);
  }

  void begin_step(std::uint32_t step) override {
    launches_.set_step(step);
    stepped_ = true;
  }
  void end_step(const StepRecord&) override {}

  std::string finish() override {
    if (backend_ != nullptr) backend_->set_observer(nullptr);
    if (!recorder_) return why_;
    late_.close();
    recorder_->stop();
    if (sink_ != nullptr && launches_.unexplained() > 0) {
      sink_->note("graphs_unexplained", std::to_string(launches_.unexplained()));
    }
    if (stepped_ && explained_->unexplained() > 0) {
      sink_->note("kernels_unexplained", std::to_string(explained_->unexplained()));
    }
    return {};
  }
  std::string lost() const override {
    if (!recorder_) return {};
    if (!recorder_->ended_early().empty()) return "recording ended early: " + recorder_->ended_early();
    const std::uint64_t dropped = recorder_->dropped();
    if (dropped != 0) return counted(dropped, "record") + (dropped == 1 ? " was dropped" : " were dropped");
    return stepped_ ? explained_->problem() : std::string();
  }

 private:
  std::string load() {
    if (api_ != nullptr) return {};
    auto loaded = load_cupti(this_machine());
    if (!loaded) return loaded.error();
    cupti_ = std::move(loaded).value();
    api_ = cupti_.activity.get();
    return {};
  }

  CuptiLibrary cupti_;
  ActivityApi* api_;
  std::optional<ExplainedSink> explained_;
  LateSink late_;
  LaunchRecorder launches_;
  std::string why_ = "it was not started";
  std::optional<ActivityRecorder> recorder_;
  Backend* backend_ = nullptr;
  ProfileSink* sink_ = nullptr;
  bool stepped_ = false;
};

}  // namespace

std::unique_ptr<RunProfile> make_trace_profile(ActivityApi* device) { return std::make_unique<TraceProfile>(device); }

}  // namespace kvroof
