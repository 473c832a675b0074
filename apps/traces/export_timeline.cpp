#include "apps/traces/export_timeline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <map>

#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/replay/replay_points.hpp"
#include "kernels/cpu/fast_attention.hpp"
#include "sim/cost/cost.hpp"
#include "sim/cost/engine_profile.hpp"

namespace kvroof {
namespace {

std::uint64_t kv_traffic(const ByteCounters& bytes) {
  return bytes[Cause::kKvRead] + bytes[Cause::kKvWrite] + bytes[Cause::kCompaction];
}

// Queries of a prompt that meet a row together, as the back end of the recording counts them; the CUDA back end takes
// as many as the fast one. Where a policy evicts after every row of the prompt, each query meets its rows by itself.
std::uint32_t queries_at_once(const TraceManifest& manifest, const ModelShape& shape, const PolicyTraits& traits) {
  const bool in_blocks = manifest.backend == "fast" || (manifest.backend == "cuda" && !shape.latent());
  return in_blocks && !traits.streams_prompt ? fast::kPrefillBlock : 1;
}

// Tracks that hold slices which overlap in part: each further one takes what does not fit into those before.
class Lanes {
 public:
  // The lane of a slice; slices come by their start, the longer first.
  std::size_t lane_of(std::uint64_t start_ns, std::uint64_t end_ns) {
    for (std::size_t i = 0;; ++i) {
      if (i == open_.size()) open_.emplace_back();
      std::vector<std::uint64_t>& ends = open_[i];
      while (!ends.empty() && ends.back() <= start_ns) ends.pop_back();
      if (!ends.empty() && ends.back() < end_ns) continue;
      ends.push_back(end_ns);
      return i;
    }
  }

 private:
  std::vector<std::vector<std::uint64_t>> open_;  // [lane]: ends of what holds one another
};

// GPUs have the numbers that processes share; where the recording does not say which it is, the process's number of it
// is a device's.
std::string stream_title(const WorkRow& row, bool several) {
  const bool known = row.gpu.has_value() || !several;
  return fmt::format("{} {} stream {}", known ? "GPU" : "device", row.gpu.value_or(row.work.device), row.work.stream);
}

}  // namespace

std::vector<TimelineStep> recorded_steps(const TraceReader& trace) {
  std::vector<TimelineStep> steps;
  for (const StepRecord& r : trace.steps()) {
    if (r.end_ns == 0) continue;
    steps.push_back({r.phase, r.start_ns, std::max(r.start_ns, r.end_ns), r.kv_resident_bytes, kv_traffic(r.bytes)});
  }
  return steps;
}

std::vector<TimelineStep> simulated_steps(const TraceManifest& manifest, const PointResult& result,
                                          const Device& device, std::uint64_t start_ns) {
  const ModelShape shape = shape_of(manifest);
  const TrafficTypes types{manifest.weight_type, cache_of(result.spec, manifest)};
  const CostModel cost(shape, types, device, default_engine_profile(device.kind, data_folder() / "catalog"));
  ResidencySummary summary = summarise(result.residency);
  const std::uint32_t queries = queries_at_once(manifest, shape, result.traits);
  std::vector<LayerCounts> totals;  // [step], of all sequences
  std::vector<std::uint64_t> running, moved;
  for (const ResidencyLog& log : result.residency) {
    const Residency residency = log.expand();
    totals.resize(std::max<std::size_t>(totals.size(), residency.steps + 1));
    running.resize(totals.size());
    moved.resize(totals.size());
    for (std::uint32_t s = 0; s <= residency.steps; ++s) {
      ++running[s];
      const auto first = residency.cells.begin() + static_cast<std::ptrdiff_t>(std::size_t{s} * residency.layers);
      totals[s] += sum_counts(std::span(first, residency.layers));
      moved[s] += kv_traffic(residency_traffic(shape, types, residency, s, queries).bytes);
    }
  }
  std::vector<TimelineStep> steps;
  for (std::size_t s = 0; s < totals.size(); ++s) {
    const LayerCounts& t = totals[s];
    double seconds = 0;
    if (s == 0) {
      seconds = cost.prefill(summary, running[s]).value;
    } else {
      // The mean sequence of those that still run.
      summary.decode = t / running[s];
      summary.decode_steps = 1;
      seconds = cost.predict(summary, running[s]).step.value;
    }
    const std::uint64_t end_ns = start_ns + static_cast<std::uint64_t>(std::llround(seconds * 1e9));
    const std::uint64_t resident = resident_bytes(shape, types.kv, t).total();
    steps.push_back({s == 0 ? "prefill" : "decode", start_ns, end_ns, resident, moved[s]});
    start_ns = end_ns;
  }
  return steps;
}

void TimelineExport::run(const std::string& name, std::span<const TimelineStep> steps, const KernelReader* kernels) {
  to_.process(++process_, name);
  if (!steps.empty()) add_steps(steps);
  if (kernels == nullptr) return;
  several_ = kernels->counts().processes > 1;
  add_kernels(*kernels);
  add_calls(*kernels);
  add_ranges(*kernels);
  add_samples(*kernels);
}

void TimelineExport::add_steps(std::span<const TimelineStep> steps) {
  const std::uint64_t slices = ++track_, resident = ++track_, moved = ++track_;
  to_.slice_track(slices, process_, "engine steps");
  if (std::ranges::all_of(steps, [](const TimelineStep& s) { return s.resident_bytes.has_value(); })) {
    to_.counter_track(resident, process_, "KV resident", "bytes");
  }
  to_.counter_track(moved, process_, "KV moved in a step", "bytes");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const TimelineStep& s = steps[i];
    const std::array<TimelineArgument, 2> arguments = {{{"step", i}, {"kv_moved_bytes", s.moved_bytes}}};
    to_.slice(slices, s.name, time(s.start_ns), time(s.end_ns), arguments);
    to_.counter(moved, time(s.start_ns), static_cast<double>(s.moved_bytes));
    if (s.resident_bytes) to_.counter(resident, time(s.end_ns), static_cast<double>(*s.resident_bytes));
  }
  to_.counter(moved, time(steps.back().end_ns), 0);
}

std::string TimelineExport::of_process(std::uint32_t process) const {
  return several_ ? fmt::format(", process {}", process) : "";
}

// A process's stream of a device, or one of its threads.
struct TimelineExport::Owner {
  std::uint32_t process = 0, device_or_thread = 0, stream = 0;
  auto operator<=>(const Owner&) const = default;
};

// Tracks of each owner, a further one wherever slices overlap in part.
struct TimelineExport::Tracks {
  std::map<std::pair<Owner, std::size_t>, std::uint64_t> numbers;
  std::map<Owner, Lanes> lanes;
};

template <class Title>
std::uint64_t TimelineExport::track_of(Tracks& tracks, const Owner& owner, std::uint64_t start_ns,
                                       std::uint64_t end_ns, const Title& title) {
  const std::size_t lane = tracks.lanes[owner].lane_of(start_ns, end_ns);
  std::uint64_t& track = tracks.numbers[{owner, lane}];
  if (track == 0) {
    track = ++track_;
    to_.slice_track(track, process_,
                    title() + of_process(owner.process) + (lane == 0 ? "" : fmt::format(" ({})", lane + 1)));
  }
  return track;
}

void TimelineExport::add_kernels(const KernelReader& kernels) {
  Tracks tracks;
  kernels.for_each_work([&](const WorkRow& row) {
    const DeviceWork& w = row.work;
    if (w.end_ns == 0) return;
    const std::uint64_t track = track_of(tracks, {w.process, w.device, w.stream}, w.start_ns, w.end_ns,
                                         [&] { return stream_title(row, several_); });
    std::array<TimelineArgument, 4> arguments;
    std::size_t n = 0;
    arguments[n++] = {"correlation", w.correlation};
    if (row.kind != WorkKind::kKernel) arguments[n++] = {"bytes", row.bytes};
    if (row.meaning) {
      arguments[n++] = {"declared_bytes", row.meaning->declared.total()};
      if (row.meaning->step != kNoStep) arguments[n++] = {"step", row.meaning->step};
    }
    const std::string_view name = row.meaning ? row.meaning->operation : row.name;
    to_.slice(track, name, time(w.start_ns), time(w.end_ns), std::span(arguments).first(n));
  });
}

void TimelineExport::add_ranges(const KernelReader& kernels) {
  Tracks tracks;
  kernels.for_each_range([&](const RangeRecord& r) {
    const std::uint64_t end = std::max(r.start_ns, r.end_ns);
    const std::uint64_t track = track_of(tracks, {r.process, r.thread, 0}, r.start_ns, end,
                                         [&] { return fmt::format("ranges of thread {}", r.thread); });
    to_.slice(track, r.text, time(r.start_ns), time(end), {});
  });
}

// A call has the correlation of the work that it launched. Those that ended before the timeline begins are left out.
void TimelineExport::add_calls(const KernelReader& kernels) {
  Tracks tracks;
  kernels.for_each_call([&](const CallRecord& c) {
    const std::uint64_t end = std::max(c.start_ns, c.end_ns);
    if (end < zero_ns_) return;
    const std::uint64_t track = track_of(tracks, {c.process, c.thread, 0}, c.start_ns, end,
                                         [&] { return fmt::format("CUDA calls of thread {}", c.thread); });
    const std::array<TimelineArgument, 1> arguments = {{{"correlation", c.correlation}}};
    to_.slice(track, c.name, time(c.start_ns), time(end), arguments);
  });
}

// Sums of bytes become rates where the sample says how long it took: DRAM throughput over time.
void TimelineExport::add_samples(const KernelReader& kernels) {
  constexpr std::string_view kDuration = "gpu__time_duration.sum";
  std::map<std::string, std::uint64_t, std::less<>> tracks;
  std::vector<std::pair<std::string, double>> values;  // of one sample
  std::uint32_t device = 0;
  std::uint64_t time_ns = 0;
  const auto write_sample = [&] {
    double ns = 0;
    for (const auto& [name, value] : values) ns = name == kDuration ? value : ns;
    for (const auto& [name, value] : values) {
      const bool percent = name.find("pct") != std::string::npos;
      const bool rate = ns > 0 && name.find("bytes") != std::string::npos && name.ends_with(".sum");
      const std::string title = fmt::format("GPU {} {}{}", device, name, rate ? ".per_second" : "");
      std::uint64_t& track = tracks[title];
      if (track == 0) {
        track = ++track_;
        to_.counter_track(track, process_, title, rate ? "GB/s" : percent ? "%" : "per sample");
      }
      to_.counter(track, time(time_ns), rate ? value / ns : value);
    }
    values.clear();
  };
  kernels.for_each_counter([&](const CounterRecord& c) {
    if (c.steps > 0) return;
    if (!values.empty() && (c.device != device || c.time_ns != time_ns)) write_sample();
    device = c.device;
    time_ns = c.time_ns;
    values.emplace_back(c.name, c.value);
  });
  write_sample();
}

}  // namespace kvroof
