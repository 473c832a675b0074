#include "analysis/kernel_report.hpp"

#include <algorithm>
#include <numeric>

namespace kvroof {
namespace {

// Metrics that add up to the bytes that DRAM moved, on chips that have the one pair or the other.
bool counts_dram_reads(std::string_view metric) {
  return metric == "dram__bytes_read.sum" || metric == "fbpa__dram_read_bytes.sum";
}
bool counts_dram_writes(std::string_view metric) {
  return metric == "dram__bytes_write.sum" || metric == "fbpa__dram_write_bytes.sum";
}

std::vector<WorkTotals> by_time(std::map<std::string, WorkTotals, std::less<>>& totals) {
  std::vector<WorkTotals> sorted;
  for (auto& [name, total] : totals) sorted.push_back(std::move(total));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const WorkTotals& a, const WorkTotals& b) { return a.total_ns > b.total_ns; });
  return sorted;
}

}  // namespace

void WorkTotals::add(std::uint64_t duration_ns, bool has_times) {
  ++calls;
  if (!has_times) return;
  min_ns = timed == 0 ? duration_ns : std::min(min_ns, duration_ns);
  max_ns = std::max(max_ns, duration_ns);
  total_ns += duration_ns;
  ++timed;
}

double WorkTotals::mean_ns() const {
  return timed == 0 ? 0 : static_cast<double>(total_ns) / static_cast<double>(timed);
}

// Launches without times are taken to be like the others.
double WorkTotals::bytes_per_second() const {
  if (total_ns == 0) return 0;
  const double timed_bytes = static_cast<double>(bytes) * static_cast<double>(timed) / static_cast<double>(calls);
  return timed_bytes / static_cast<double>(total_ns) * 1e9;
}

double StepTotals::total_ns() const { return std::accumulate(cause_ns.begin(), cause_ns.end(), 0.0); }

WorkTotals& KernelReportBuilder::named(std::map<std::string, WorkTotals, std::less<>>& totals, std::string_view name) {
  const auto it = totals.find(name);
  if (it != totals.end()) return it->second;
  WorkTotals& added = totals[std::string(name)];
  added.name = name;
  return added;
}

void KernelReportBuilder::add(const WorkRow& row) {
  const bool has_times = row.work.end_ns > row.work.start_ns;
  const std::uint64_t duration = has_times ? row.work.end_ns - row.work.start_ns : 0;
  if (has_times) add_span(row.work);
  if (row.kind != WorkKind::kKernel) {
    WorkTotals& totals = named(copies_, row.name);
    totals.add(duration, has_times);
    totals.bytes += row.bytes;
    return;
  }
  const bool meant = row.meaning.has_value();
  for (WorkTotals* totals : {&named(operators_, meant ? row.meaning->operation : row.name), &report_.all_kernels}) {
    totals->add(duration, has_times);
    if (!meant) continue;
    totals->bytes += row.meaning->declared.total();
    totals->flops += row.meaning->flops;
  }
  if (meant) add_meaning(*row.meaning, duration);
}

void KernelReportBuilder::add_meaning(const KernelMeaning& meaning, std::uint64_t duration_ns) {
  StepTotals& step = steps_[meaning.step];
  step.step = meaning.step;
  ++step.kernels;
  step.declared += meaning.declared;
  const std::uint64_t total = meaning.declared.total();
  for (std::size_t c = 0; c < kCauses; ++c) {
    const double share = total > 0 ? static_cast<double>(meaning.declared.bytes[c]) / static_cast<double>(total)
                                   : static_cast<double>(kCauseNames[c] == meaning.cause);
    step.cause_ns[c] += share * static_cast<double>(duration_ns);
  }
}

void KernelReportBuilder::add_span(const DeviceWork& work) {
  const auto [it, first] = devices_.try_emplace({work.process, work.device}, Span{work.start_ns, work.end_ns});
  if (first) return;
  Span& span = it->second;
  if (work.start_ns > span.last_ns) {
    const std::uint64_t gap = work.start_ns - span.last_ns;
    report_.idle_ns += gap;
    report_.longest_gap_ns = std::max(report_.longest_gap_ns, gap);
    ++report_.gaps;
  }
  span.last_ns = std::max(span.last_ns, work.end_ns);
}

void KernelReportBuilder::add(const CounterRecord& counter) {
  const bool reads = counts_dram_reads(counter.name), writes = counts_dram_writes(counter.name);
  if (counter.steps == 0 || (!reads && !writes)) return;
  Counted& counted = counted_[{counter.first_step, counter.steps}];
  counted.bytes += counter.value;
  counted.reads = counted.reads || reads;
  counted.writes = counted.writes || writes;
}

// Of the engine's own count where the trace has it: counters may have run without kernels being recorded.
std::uint64_t KernelReportBuilder::declared_of(std::uint32_t first_step, std::uint32_t steps) const {
  const auto sum = [&](const auto& all, const auto& bytes_of) {
    std::uint64_t bytes = 0;
    for (auto it = all.lower_bound(first_step); it != all.end() && it->first - first_step < steps; ++it) {
      bytes += bytes_of(it->second).total();
    }
    return bytes;
  };
  if (!engine_steps_.empty()) return sum(engine_steps_, [](const ByteCounters& b) { return b; });
  return sum(steps_, [](const StepTotals& s) { return s.declared; });
}

KernelReport KernelReportBuilder::finish() {
  report_.operators = by_time(operators_);
  report_.copies = by_time(copies_);
  report_.all_kernels.name = "all kernels";
  for (const auto& [device, span] : devices_) report_.elapsed_ns += span.last_ns - span.first_ns;
  for (const auto& [number, step] : steps_) {
    report_.steps.push_back(step);
    report_.policy_ns += step.policy_ns();
    report_.policy_bytes += step.declared[Cause::kScores] + step.declared[Cause::kCompaction];
  }
  for (const auto& [range, counted] : counted_) {
    report_.counted.push_back({.first_step = range.first,
                               .steps = range.second,
                               .counted_bytes = counted.bytes,
                               .both_ways = counted.reads && counted.writes,
                               .declared_bytes = declared_of(range.first, range.second)});
  }
  return std::move(report_);
}

}  // namespace kvroof
