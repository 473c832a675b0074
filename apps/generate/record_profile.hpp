// `record --cupti`: which modes of CUPTI watch a run of the engine, and what came of each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/generate/backend_choice.hpp"
#include "kernels/cupti/run_profile.hpp"
#include "kernels/cupti/step_clock.hpp"

namespace kvroof {

inline constexpr const char* kCuptiHelp =
    "watch the GPU: none; trace (kernels), counters (DRAM bytes of each step), pm (DRAM load against time), or all of "
    "them, each in a run of its own";
inline constexpr const char* kRangesHelp =
    "what --cupti counters counts as one: step; operator (each launch by itself, without CUDA graphs)";

// The run that is recorded is watched in the first mode; each further one has a run of its own, which does the same
// again, and its counters are joined by step.
class RecordProfile final : public StepWatcher {
 public:
  // Reads --cupti and --ranges: null for none. Throws Error (usage). What must begin before the device is used begins
  // here.
  static std::unique_ptr<RecordProfile> from(const Arguments& arguments);

  void attach(BackendKind kind, Backend& backend, ProfileSink& sink);
  void begin_step(std::uint32_t step) override;
  void end_step(const StepRecord& step) override;

  // Does the recorded run again, on a new back end that is given to `attach` first.
  using Repeat =
      std::function<SessionResult(StepWatcher& watcher, const std::function<void(Backend& backend)>& attach)>;
  // After the recorded run; `result` null: it failed. Runs what modes remain, writes level and reasons as notes, and
  // says them on stderr unless `quiet`.
  void finish(const SessionResult* result, ProfileSink& sink, const Repeat& repeat, bool quiet);

 private:
  struct Mode {
    std::string_view name;
    std::unique_ptr<RunProfile> run;
    std::string why;  // it was not reached; empty: it was
  };
  explicit RecordProfile(std::vector<Mode> modes) : modes_(std::move(modes)) {}
  std::string watch_again(RunProfile& run, const SessionResult& result, ProfileSink& sink, const Repeat& repeat);
  void tell(ProfileSink& sink, bool quiet) const;

  std::vector<Mode> modes_;
  RunProfile* watching_ = nullptr;
  StepTimes times_;  // of the run in progress
};

}  // namespace kvroof
