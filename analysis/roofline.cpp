#include "analysis/roofline.hpp"

#include <algorithm>

namespace kvroof {
namespace {

// Operations and bytes of some launches beside the time of all would be no place.
bool has_place(const KernelReport& report, const WorkTotals& totals) {
  const bool known = !report.steps.empty() || totals.known == totals.calls;
  return known && totals.flops > 0 && totals.bytes > 0 && totals.total_ns > 0;
}

// An operator that has a place in another phase is left out of this one alone.
void leave_out(const std::map<std::pair<std::string, std::string>, double>& without, double all_ns, Roofline& to) {
  std::map<std::string, double> times;
  for (const auto& [of, ns] : without) {
    const auto& [name, phase] = of;
    const bool drawn = std::any_of(to.marks.begin(), to.marks.end(), [&](const auto& m) { return m.name == name; });
    times[drawn ? name + " of " + phase : name] += ns;
    if (all_ns > 0) to.left_out_share += ns / all_ns;
  }
  for (const auto& [name, ns] : times) to.left_out.push_back(name);
  std::stable_sort(to.left_out.begin(), to.left_out.end(),
                   [&](const std::string& a, const std::string& b) { return times[a] > times[b]; });
}

}  // namespace

void RooflineBuilder::add(const WorkRow& row) {
  if (row.kind != WorkKind::kKernel) return;
  const auto phase = row.meaning ? phases_.find(row.meaning->step) : phases_.end();
  reports_[phase == phases_.end() ? std::string() : phase->second].add(row);
}

Roofline RooflineBuilder::finish(std::size_t top) {
  Roofline roofline;
  std::map<std::string, KernelReport> reports;
  double all_ns = 0;
  for (auto& [phase, builder] : reports_) {
    const KernelReport& report = reports.emplace(phase, builder.finish()).first->second;
    all_ns += static_cast<double>(report.all_kernels.total_ns);
  }
  std::map<std::pair<std::string, std::string>, double> without;  // a place: name and phase, their time
  for (const auto& [phase, report] : reports) {
    const auto mark = [&, group = roofline.groups.size()](const WorkTotals& t, bool whole) {
      const double intensity = t.flops_per_byte();
      roofline.marks.push_back({t.name, group, whole, intensity, intensity * t.bytes_per_second(),
                                static_cast<double>(t.total_ns) / all_ns});
    };
    const std::size_t before = roofline.marks.size();
    for (const WorkTotals& t : report.operators) {
      if (!has_place(report, t)) {
        without[{t.name, phase}] += static_cast<double>(t.total_ns);
      } else if (top == 0 || roofline.marks.size() - before < top) {
        mark(t, false);
      }
    }
    if (roofline.marks.size() == before) continue;
    if (has_place(report, report.all_kernels)) mark(report.all_kernels, true);
    roofline.groups.push_back(phase);
  }
  leave_out(without, all_ns, roofline);
  return roofline;
}

}  // namespace kvroof
