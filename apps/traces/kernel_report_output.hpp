// A kernel report as tables and JSON, each operator against the limits of a device.
#pragma once

#include <optional>
#include <string>

#include "analysis/kernel_report.hpp"
#include "analysis/range_report.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/table.hpp"
#include "apps/traces/recorded_level.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

// What the report is about; so many rows of operators and of steps are shown by themselves (0: all), the others as one.
struct KernelAnswer {
  const KernelReport& report;
  std::optional<Device> device;
  std::size_t top = 0, top_steps = 0;
  RecordedLevel recorded{};
  std::optional<RangeReport> ranges{};  // where they were asked for
};

// A row for each operator, then all kernels, the policy's own work, copies, and idle time.
Table operator_table(const KernelAnswer& answer);
// The same with a row for each purpose of kernels (gemm, attention, …) in place of those of operators.
Table purpose_table(const KernelAnswer& answer);
// A row for each engine step: its time by cause, and bytes declared and counted.
Table step_table(const KernelAnswer& answer);
// A row for each text of ranges, then the work outside of all, and all work.
Table range_table(const KernelAnswer& answer);
// Of any of them, what a page has room for: no column without a word, and beside bytes and rates no median and
// deviation. For programs the columns are always the same.
Table for_people(Table table);
// Of a recording without kernels: one row that says why.
Table nothing_table(const RecordedLevel& recorded);
// All of them, ranges where they were asked for, the device and the level.
std::string kernel_report_json(const KernelAnswer& answer);

}  // namespace kvroof
