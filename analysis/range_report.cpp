#include "analysis/range_report.hpp"

#include <algorithm>
#include <functional>

namespace kvroof {
namespace {

std::uint64_t duration(const LaunchedWork& work) { return work.end_ns - std::min(work.start_ns, work.end_ns); }

void count(RangeTotals& totals, const LaunchedWork& work) {
  ++(work.kind == WorkKind::kKernel ? totals.kernels : totals.copies);
  totals.total_ns += duration(work);
}

}  // namespace

void RangeReportBuilder::close(const Open& range) { range.totals->span_ns += range.last_ns - range.first_ns; }

// Ranges that ended by then, and all of another thread.
void RangeReportBuilder::close_until(std::uint64_t thread, std::uint64_t ns) {
  const bool other = thread != thread_;
  thread_ = thread;
  std::erase_if(open_, [&](const Open& range) {
    const bool ended = other || range.end_ns <= ns;
    if (ended) close(range);
    return ended;
  });
}

void RangeReportBuilder::add(const ThreadRange& range) {
  close_until(range.thread, range.start_ns);
  auto found = totals_.find(range.text);
  if (found == totals_.end()) found = totals_.emplace(std::string(range.text), RangeTotals{}).first;
  ++found->second.ranges;
  open_.push_back({range.end_ns, &found->second});
}

void RangeReportBuilder::add(const LaunchedWork& work) {
  count(report_.all, work);
  if (work.thread) close_until(*work.thread, work.launched_ns);
  if (!work.thread || open_.empty()) return count(report_.outside, work);
  open_.back().totals->own_ns += duration(work);
  for (auto range = open_.begin(); range != open_.end(); ++range) {
    // A range inside one of its own text, as a function that calls itself has them, is that work once.
    const bool again = std::any_of(open_.begin(), range, [&](const Open& o) { return o.totals == range->totals; });
    if (again) continue;
    count(*range->totals, work);
    if (work.end_ns == 0) continue;  // without times
    range->first_ns = range->last_ns == 0 ? work.start_ns : std::min(range->first_ns, work.start_ns);
    range->last_ns = std::max(range->last_ns, work.end_ns);
  }
}

RangeReport RangeReportBuilder::finish() {
  for (const Open& range : open_) close(range);
  open_.clear();
  for (auto& [text, totals] : totals_) {
    totals.text = text;
    report_.ranges.push_back(std::move(totals));
  }
  std::ranges::stable_sort(report_.ranges, std::greater(), &RangeTotals::total_ns);
  return std::move(report_);
}

}  // namespace kvroof
