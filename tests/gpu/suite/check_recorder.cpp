// The recorder on a device: nothing lost in ten thousand steps, counted bytes beside declared ones, and what each mode
// costs.
#include <chrono>
#include <cmath>
#include <map>
#include <memory>

#include "kernels/cuda/device_activity.hpp"
#include "kernels/cupti/run_profile.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/engine_timing.hpp"
#include "kernels/cuda/measure/timing.hpp"
#include "tests/gpu/suite/parts.hpp"
#include "traces/null_sink.hpp"

namespace kvroof::suite {
namespace {

// Counts records, and adds up what they declare and count.
class Sums final : public NullSink {
 public:
  using NullSink::add;
  void add(const KernelRecord& r) override {
    ++kernels;
    without_time += r.work.end_ns == 0;
    // By the clock of the steps no kernel ends after its record is read.
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    in_future += r.work.end_ns > static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
  }
  void add(const OperatorRecord& r) override { declared += r.declared_bytes; }
  void add(const CounterRecord& r) override {
    ++counters;
    const bool dram = r.name.find("dram__bytes_") == 0 || r.name.find("fbpa__dram_") == 0;
    if (!dram) return;
    const bool reads = r.name.find("read") != std::string_view::npos;
    (reads ? read : written) += r.value;
    if (!reads || r.operation.empty()) return;
    Operator& of = operators[std::string(r.operation)];
    ++of.launches;
    of.read += r.value;
    of.declared += static_cast<double>(r.declared_bytes);
  }
  void note(std::string_view key, std::string_view value) override { notes[std::string(key)] = value; }
  std::uint64_t kernels = 0, without_time = 0, in_future = 0, declared = 0, counters = 0;
  double read = 0, written = 0;
  struct Operator {
    std::uint64_t launches = 0;
    double read = 0, declared = 0;
  };
  std::map<std::string, Operator> operators;  // where launches were counted one by one
  std::map<std::string, std::string> notes;
};

std::unique_ptr<RunProfile> g_trace;

// Steps of the engine, each told to the profile as a session would; their seconds, with what the telling costs.
std::vector<double> watched_steps(EngineTiming& engine, RunProfile& profile, std::uint32_t steps) {
  std::vector<double> seconds;
  for (std::uint32_t i = 0; i < steps; ++i) {
    const auto before = std::chrono::steady_clock::now();
    profile.begin_step(i);
    engine.decode();
    profile.end_step({});
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
  }
  return seconds;
}

void add_times(const Options& options, Report& report, const char* mode, std::vector<double> seconds) {
  const cuda::Measured m = cuda::measured(seconds);
  report.add("recorder_step", {{"mode", mode}, {"model", "mpt-7b"}, {"batch", 1}, {"prompt", options.small ? 8 : 256}},
             {{"median_seconds", m.median}, {"best_seconds", m.best}, {"spread", m.spread}, {"runs", m.runs}});
}

bool lost_nothing(const Sums& sums) {
  bool lost = sums.without_time > 0 || sums.in_future > 0 || sums.notes.at("dropped") != "0";
  for (const char* note : {"ended_early", "graphs_unexplained", "kernels_unexplained", "meanings_lost"}) {
    lost = lost || sums.notes.contains(note);
  }
  return !lost;
}

// Of a model whose steps take next to no time: as many launches a second as there can be.
void check_losses(const Options& options, Report& report) {
  const std::uint32_t steps = options.small ? 20 : 10'000;
  Sums sums;
  // The recorder writes into `sums` until it has ended.
  const std::unique_ptr<const Sums, void (*)(const Sums*)> ended(&sums, [](const Sums*) { g_trace.reset(); });
  const Model small = random_model("llama-3-8b", 16'384, true, options.seed);
  double declared = 0;
  {
    EngineTiming engine(small, "streaming:budget=64");
    g_trace->attach(engine.backend(), sums);
    engine.grow(1, 128, steps);
    watched_steps(engine, *g_trace, steps);
    declared = engine.all_bytes_moved();
  }
  const Model model = random_model("mpt-7b", 2048, options.small, options.seed);
  EngineTiming engine(model, "full");
  g_trace->attach(engine.backend(), sums);
  engine.grow(1, options.small ? 8 : 256, 400);
  add_times(options, report, "trace", watched_steps(engine, *g_trace, options.small ? 4 : 200));
  declared += engine.all_bytes_moved();
  const std::string why = g_trace->finish();
  g_trace.reset();
  const Json parameters = {{"steps", steps}};
  if (!why.empty()) return report.add("trace_losses", parameters, {{"skipped", why}});
  const bool whole = lost_nothing(sums) && static_cast<double>(sums.declared) >= declared;
  report.check("trace_losses", parameters, whole,
               {{"kernels", sums.kernels},
                {"without_time", sums.without_time},
                {"by_another_clock", sums.in_future},
                {"declared_bytes", sums.declared},
                {"engine_bytes", declared},
                {"notes", sums.notes}});
}

// What DRAM gave beside what had to be read. A read of memory far larger than L2; whole steps, whose activations stay
// on the chip.
void check_counts(const Options& options, Report& report) {
  const Model model = random_model("mpt-7b", 2048, options.small, options.seed);
  EngineTiming engine(model, "full");
  engine.grow(1, options.small ? 8 : 256, 400);
  cuda::OpenStream open;
  cuda::Stream& stream = open.get();
  const std::size_t bytes = options.small ? std::size_t{1} << 16 : std::size_t{2} << 30;
  const cuda::DeviceBuffer from(bytes), sink(16);
  cuda::run_noise(stream, cuda::Noise::kBytes, 1, 1, from.at(), bytes);
  // What was written last stays in L2, some 2 % of it, unless other writes follow: reads that go by once drive it out
  // last of all, and would not come from DRAM.
  const cuda::DeviceBuffer others(cuda::pieces_of(16, options.card) * 16);
  cuda::run_fill(stream, others.at(), others.bytes());
  cuda::check_device(cuda::synchronize(stream), "filling memory");
  const auto counted = [&](const char* what, double tolerance, const std::function<double()>& work) {
    Sums sums;
    const auto profile = make_counter_profile(cuda::device_activity() != nullptr);
    profile->start();
    profile->attach(engine.backend(), sums);
    profile->begin_step(0);
    const double declared = work();
    profile->end_step({});
    const std::string why = profile->finish();
    const Json parameters = {{"of", what}};
    if (!why.empty()) return report.add("counted_bytes", parameters, {{"skipped", why}});
    const double ratio = sums.read / declared;
    report.check("counted_bytes", parameters, std::abs(ratio - 1) <= tolerance,
                 {{"declared", declared},
                  {"read", sums.read},
                  {"written", sums.written},
                  {"ratio", ratio},
                  {"notes", sums.notes}});
  };
  counted("a read of 2 GiB", 0.02, [&] {
    cuda::run_read(stream, from.at(), bytes, sink.at<float>());
    cuda::check_device(cuda::synchronize(stream), "reading");
    return static_cast<double>(bytes);
  });
  counted("16 whole steps of mpt-7b", 0.05, [&] {
    engine.bytes_moved();
    for (int i = 0; i < 16; ++i) engine.decode();
    return engine.bytes_moved();
  });
}

// Whole steps, launch by launch. What a launch writes may reach DRAM in the range of another, and small launches live
// in L2, so that only the sum of all is held to a limit. What an operator reads beyond its bytes is said for a launch:
// a ratio of kilobytes, most of which are written and stay in L2, says nothing.
void check_operators(const Options& options, Report& report) {
  const Model model = random_model("mpt-7b", 2048, options.small, options.seed);
  EngineTiming engine(model, "full");
  engine.grow(1, options.small ? 8 : 256, 400);
  const auto profile = make_counter_profile(cuda::device_activity() != nullptr, CountedRange::kOperator);
  Sums sums;
  profile->start();
  profile->attach(engine.backend(), sums);
  const std::uint32_t steps = options.small ? 2 : 16;
  watched_steps(engine, *profile, steps);
  const std::string why = profile->finish();
  const Json parameters = {{"steps", steps}, {"model", "mpt-7b"}};
  if (!why.empty()) return report.add("counted_operators", parameters, {{"skipped", why}});
  double declared = 0;
  for (const auto& [name, of] : sums.operators) {
    report.add("counted_operator", {{"operator", name}, {"steps", steps}},
               {{"declared", of.declared},
                {"read", of.read},
                {"ratio", of.read / of.declared},
                {"launches", of.launches},
                {"excess_of_launch", (of.read - of.declared) / static_cast<double>(of.launches)}});
    declared += of.declared;
  }
  const double ratio = sums.read / declared;
  report.check("counted_operators", parameters, std::abs(ratio - 1) <= 0.05,
               {{"declared", declared},
                {"read", sums.read},
                {"written", sums.written},
                {"ratio", ratio},
                {"notes", sums.notes}});
}

// Steps under the modes that count; those without a recorder are in the part `steps`.
void measure_modes(const Options& options, Report& report) {
  const bool emulated = cuda::device_activity() != nullptr;
  const Model model = random_model("mpt-7b", 2048, options.small, options.seed);
  for (const char* mode : {"counters", "pm"}) {
    EngineTiming engine(model, "full");
    engine.grow(1, options.small ? 8 : 256, 400);
    const auto profile = *mode == 'c' ? make_counter_profile(emulated) : make_sampling_profile(emulated);
    Sums sums;
    profile->start();
    profile->attach(engine.backend(), sums);
    const std::vector<double> seconds = watched_steps(engine, *profile, options.small ? 4 : 200);
    const std::string why = profile->finish();
    if (!why.empty()) {
      report.add("recorder_step", {{"mode", mode}}, {{"skipped", why}});
      continue;
    }
    add_times(options, report, mode, seconds);
    // A mode that ended early, or whose samples had another clock, says so here.
    report.add("recorder_values", {{"mode", mode}}, {{"values", sums.counters}, {"notes", sums.notes}});
  }
}

}  // namespace

void prepare_recorder() {
  g_trace = make_trace_profile(cuda::device_activity());
  g_trace->start();
}

void check_recorder(const Options& options, Report& report) {
  const Json whole = Json::object();
  report.guarded("trace_losses", whole, [&] { check_losses(options, report); });
  report.guarded("counted_bytes", whole, [&] { check_counts(options, report); });
  report.guarded("counted_operators", whole, [&] { check_operators(options, report); });
  report.guarded("recorder_step", whole, [&] { measure_modes(options, report); });
}

}  // namespace kvroof::suite
