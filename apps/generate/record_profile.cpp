#include "apps/generate/record_profile.hpp"

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <set>

#include "apps/cli/messages.hpp"
#include "kernels/cuda/device_activity.hpp"
#include "sim/core/suggest.hpp"
#include "traces/forwarding_sink.hpp"

namespace kvroof {
namespace {

// Counters of a repeated run wait here until it is known to have been the same run; then they go on.
class WaitingCounters final : public ForwardingSink {
 public:
  explicit WaitingCounters(ProfileSink& to) : to_(to) {}
  using ForwardingSink::add;
  void add(const CounterRecord& record) override {
    auto name = names_.find(record.name);
    if (name == names_.end()) name = names_.emplace(record.name).first;
    waiting_.push_back(record);
    waiting_.back().name = *name;  // a set's strings stay where they are
  }

  // Samples take the moment of the recorded run; how many have none.
  std::size_t join(const StepTimes& own, const StepTimes& recorded) {
    std::size_t outside = 0;
    for (CounterRecord& record : waiting_) {
      if (record.steps == 0) {
        const auto moment = same_moment(own, recorded, record.time_ns);
        outside += !moment;
        if (!moment) continue;
        record.time_ns = *moment;
      }
      to_.add(record);
    }
    return outside;
  }
  [[nodiscard]] std::size_t size() const { return waiting_.size(); }

 private:
  ProfileSink& to() override { return to_; }
  ProfileSink& to_;
  std::vector<CounterRecord> waiting_;
  std::set<std::string, std::less<>> names_;
};

bool same_tokens(const SessionResult& a, const SessionResult& b) {
  bool same = a.sequences.size() == b.sequences.size();
  for (std::size_t s = 0; same && s < a.sequences.size(); ++s) same = a.sequences[s].ids == b.sequences[s].ids;
  return same;
}

}  // namespace

std::unique_ptr<RecordProfile> RecordProfile::from(const Arguments& arguments) {
  const std::string& asked = arguments.get<std::string>("cupti");
  const std::string& ranges = arguments.get<std::string>("ranges");
  if (ranges != "step" && ranges != "operator") {
    throw usage_error(fmt::format("--ranges {}: expected step or operator", ranges));
  }
  const bool all = asked == "all", counters = all || asked == "counters";
  if (ranges == "operator" && !counters) {
    throw usage_error(fmt::format("--ranges operator with --cupti {}: ranges are what --cupti counters counts", asked))
        .note("record with --cupti counters, or with all to have the kernels' times beside them");
  }
  if (asked == "none") return nullptr;
  ActivityApi* const device = cuda::device_activity();
  const CountedRange range = ranges == "operator" ? CountedRange::kOperator : CountedRange::kStep;
  std::vector<Mode> modes;
  if (all || asked == "trace") modes.push_back({"trace", make_trace_profile(device), {}});
  if (counters) modes.push_back({"counters", make_counter_profile(device != nullptr, range), {}});
  if (all || asked == "pm") modes.push_back({"pm", make_sampling_profile(device != nullptr), {}});
  if (modes.empty()) {
    const std::vector<std::string> known = {"none", "trace", "counters", "pm", "all"};
    throw usage_error(fmt::format("--cupti {}: unknown{}", asked, did_you_mean(asked, known)))
        .note("known: " + join(known));
  }
  std::unique_ptr<RecordProfile> profile(new RecordProfile(std::move(modes)));
  const bool on_cpu = arguments.has("backend") && arguments.get<std::string>("backend") != "cuda";
  for (Mode& mode : profile->modes_) {
    if (!on_cpu) mode.run->start();
  }
  return profile;
}

void RecordProfile::attach(BackendKind kind, Backend& backend, ProfileSink& sink) {
  if (kind != BackendKind::kCuda) {
    for (Mode& mode : modes_) mode.why = fmt::format("the run was on the CPU (back end {})", name_of(kind));
    return;
  }
  watching_ = modes_.front().run.get();
  watching_->attach(backend, sink);
}

void RecordProfile::begin_step(std::uint32_t step) {
  if (watching_ != nullptr) watching_->begin_step(step);
}

void RecordProfile::end_step(const StepRecord& step) {
  times_.emplace_back(step.start_ns, step.end_ns);
  if (watching_ != nullptr) watching_->end_step(step);
}

// Empty, or why there are no counters of the recorded run.
std::string RecordProfile::watch_again(RunProfile& run, const SessionResult& result, ProfileSink& sink,
                                       const Repeat& repeat) {
  if (std::string problem = run.problem(); !problem.empty()) return problem;
  WaitingCounters counters(sink);
  const StepTimes recorded = times_;
  times_.clear();
  watching_ = &run;
  std::string why;
  try {
    const SessionResult again = repeat(*this, [&](Backend& backend) { run.attach(backend, counters); });
    why = run.finish();
    if (why.empty() && !same_tokens(result, again)) why = "its run made other tokens than the recorded one";
  } catch (const std::exception& problem) {  // memory and threads may be refused as well
    static_cast<void>(run.finish());
    why = fmt::format("its run failed: {}", problem.what());
  }
  watching_ = nullptr;
  if (why.empty()) {
    const std::size_t outside = counters.join(times_, recorded);
    if (outside == counters.size()) why = "the clock of its samples is not that of the steps";
    if (outside > 0) sink.note("samples_between_steps", std::to_string(outside));
  }
  times_ = recorded;
  return why;
}

void RecordProfile::finish(const SessionResult* result, ProfileSink& sink, const Repeat& repeat, bool quiet) {
  if (watching_ != nullptr) {
    modes_.front().why = watching_->finish();
    watching_ = nullptr;
    const bool whole = result != nullptr && !result->interrupted;
    for (std::size_t i = 1; i < modes_.size(); ++i) {
      modes_[i].why = whole ? watch_again(*modes_[i].run, *result, sink, repeat)
                            : "the recorded run did not come to its end";
    }
  }
  tell(sink, quiet);
}

void RecordProfile::tell(ProfileSink& sink, bool quiet) const {
  std::vector<std::string> reached, reasons, lost;
  for (const Mode& mode : modes_) {
    if (mode.why.empty()) {
      reached.emplace_back(mode.name);
      if (const std::string what = mode.run->lost(); !what.empty()) lost.push_back(what);
    } else {
      reasons.push_back(fmt::format("{}: {}", mode.name, mode.why));
    }
  }
  const std::string level = reached.empty() ? "none" : join(reached);
  const std::string why = join(reasons, "; ");
  sink.note("level", level);
  if (!why.empty()) sink.note("why", why);
  const bool emulated = cuda::device_activity() != nullptr && !reached.empty();
  if (emulated) sink.note("emulated", "kernels ran on the host, one after another: their times are not a GPU's");
  if (quiet) return;
  reasons.insert(reasons.end(), lost.begin(), lost.end());
  say("cupti: {}{}{}\n", level, reasons.empty() ? "" : "; " + join(reasons, "; "),
      emulated ? " (emulated)" : "");
}

}  // namespace kvroof
