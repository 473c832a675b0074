#include "analysis/kernel_report.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace kvroof {
namespace {

// Metrics that add up to the bytes that DRAM moved, on chips that have the one pair or the other.
bool counts_dram_reads(std::string_view metric) {
  return metric == "dram__bytes_read.sum" || metric == "fbpa__dram_read_bytes.sum";
}
bool counts_dram_writes(std::string_view metric) {
  return metric == "dram__bytes_write.sum" || metric == "fbpa__dram_write_bytes.sum";
}

// Where counters ran and no kernels were recorded, the counted launches are all that is known.
void take_declared(WorkTotals& totals) {
  if (totals.calls == 0) totals.bytes = totals.counted.declared;
}

std::vector<WorkTotals> by_time(std::map<std::string, WorkTotals, std::less<>>& totals) {
  std::vector<WorkTotals> sorted;
  for (auto& [name, total] : totals) sorted.push_back(std::move(total));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const WorkTotals& a, const WorkTotals& b) {
                     return std::pair(a.total_ns, a.counted.bytes) > std::pair(b.total_ns, b.counted.bytes);
                   });
  return sorted;
}

}  // namespace

void CountedBytes::add(double moved, bool is_write) {
  bytes += moved;
  (is_write ? writes : reads) = true;
}

CountedBytes& CountedBytes::operator+=(const CountedBytes& other) {
  bytes += other.bytes;
  declared += other.declared;
  reads = reads || other.reads;
  writes = writes || other.writes;
  return *this;
}

void WorkTotals::add(std::uint64_t duration_ns, bool has_times) {
  ++calls;
  if (!has_times) return;
  min_ns = timed == 0 ? duration_ns : std::min(min_ns, duration_ns);
  max_ns = std::max(max_ns, duration_ns);
  total_ns += duration_ns;
  spread.add(duration_ns);
  ++timed;
}

WorkTotals& WorkTotals::operator+=(const WorkTotals& other) {
  if (other.timed > 0) {
    min_ns = timed == 0 ? other.min_ns : std::min(min_ns, other.min_ns);
    max_ns = std::max(max_ns, other.max_ns);
  }
  calls += other.calls;
  timed += other.timed;
  total_ns += other.total_ns;
  spread += other.spread;
  bytes += other.bytes;
  flops += other.flops;
  known += other.known;
  counted += other.counted;
  return *this;
}

double WorkTotals::mean_ns() const {
  return timed == 0 ? 0 : static_cast<double>(total_ns) / static_cast<double>(timed);
}

double WorkTotals::median_ns() const {
  return std::clamp(spread.median_ns(), static_cast<double>(min_ns), static_cast<double>(max_ns));
}

// Launches without times are taken to be like the others.
double WorkTotals::bytes_per_second() const {
  if (total_ns == 0) return 0;
  const double timed_bytes = static_cast<double>(bytes) * static_cast<double>(timed) / static_cast<double>(calls);
  return timed_bytes / static_cast<double>(total_ns) * 1e9;
}

double WorkTotals::flops_per_byte() const {
  return bytes == 0 ? 0 : static_cast<double>(flops) / static_cast<double>(bytes);
}

double StepTotals::total_ns() const { return std::accumulate(cause_ns.begin(), cause_ns.end(), 0.0); }

StepTotals& StepTotals::operator+=(const StepTotals& other) {
  kernels += other.kernels;
  for (std::size_t i = 0; i < kCauses; ++i) cause_ns[i] += other.cause_ns[i];
  declared += other.declared;
  return *this;
}

WorkTotals& KernelReportBuilder::named(Totals& totals, std::string_view name) {
  const auto it = totals.find(name);
  if (it != totals.end()) return it->second;
  WorkTotals& added = totals[std::string(name)];
  added.name = name;
  return added;
}

// Libraries give kernels of several purposes one short name, such as device_kernel.
WorkTotals& KernelReportBuilder::kernels_of(const WorkRow& row) {
  if (row.meaning) return named(operators_, row.meaning->operation);
  std::string key(row.name);
  key.append(1, '\0').append(row.purpose);
  WorkTotals& totals = named(operators_, key);
  totals.name = row.name;
  totals.purpose = row.purpose;
  return totals;
}

void KernelReportBuilder::add(const WorkRow& row) {
  const bool has_times = row.work.end_ns > row.work.start_ns;
  const std::uint64_t duration = row.own_ns();
  if (has_times) add_span(row);
  if (row.kind != WorkKind::kKernel) {
    WorkTotals& totals = named(copies_, row.name);
    totals.add(duration, has_times);
    totals.bytes += row.bytes;
    ++totals.known;
    return;
  }
  const bool meant = row.meaning.has_value(), own = meant && row.meaning->step != kNoStep;
  WorkTotals& purpose = named(purposes_, own ? row.meaning->operation : row.purpose);
  if (!own) purpose.purpose = row.purpose;
  for (WorkTotals* totals : {&kernels_of(row), &purpose, &report_.all_kernels}) {
    totals->add(duration, has_times);
    if (!meant) continue;
    totals->bytes += row.meaning->declared.total();
    totals->flops += row.meaning->flops;
    ++totals->known;
  }
  if (own) add_meaning(*row.meaning, duration);
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

void KernelReportBuilder::add_span(const WorkRow& row) {
  const DeviceWork& work = row.work;
  const std::tuple place(row.gpu.has_value(), row.gpu ? 0U : work.process, row.gpu.value_or(work.device));
  const auto [it, first] = devices_.try_emplace(place, Span{work.start_ns, work.end_ns});
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
  counted_[{counter.first_step, counter.steps}].add(counter.value, writes);
  if (counter.operation.empty()) return;
  WorkTotals& purpose = named(purposes_, counter.operation);
  for (WorkTotals* totals : {&named(operators_, counter.operation), &purpose, &report_.all_kernels}) {
    totals->counted.add(counter.value, writes);
    if (reads) totals->counted.declared += counter.declared_bytes;  // each direction's record has them
  }
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
  report_.purposes = by_time(purposes_);
  for (WorkTotals& totals : report_.operators) take_declared(totals);
  for (WorkTotals& totals : report_.purposes) take_declared(totals);
  take_declared(report_.all_kernels);
  std::set<std::uint32_t> processes;  // without a known GPU
  bool some_known = false;
  for (const auto& [place, span] : devices_) {
    report_.elapsed_ns += span.last_ns - span.first_ns;
    some_known = some_known || std::get<0>(place);
    if (!std::get<0>(place)) processes.insert(std::get<1>(place));
  }
  if (processes.size() > (some_known ? 0 : 1)) report_.without_gpu = processes.size();
  for (const auto& [number, step] : steps_) {
    report_.steps.push_back(step);
    report_.policy_ns += step.policy_ns();
    report_.policy_bytes += step.declared[Cause::kScores] + step.declared[Cause::kCompaction];
  }
  for (auto& [range, counted] : counted_) {
    counted.declared = declared_of(range.first, range.second);
    report_.counted.push_back({range.first, range.second, counted});
  }
  return std::move(report_);
}

}  // namespace kvroof
