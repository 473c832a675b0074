// A kernel report as tables and JSON, each operator against the limits of a device.
#pragma once

#include <optional>
#include <string>

#include "analysis/kernel_report.hpp"
#include "apps/command.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

// What the report is about; `top` 0: all rows.
struct KernelAnswer {
  const KernelReport& report;
  std::optional<Device> device;
  std::size_t top = 0;
};

// A row for each operator, then all kernels, the policy's own work, copies, and idle time.
Table operator_table(const KernelAnswer& answer);
// A row for each engine step: its time by cause, and bytes declared and counted.
Table step_table(const KernelAnswer& answer);
// Both, and the device.
std::string kernel_report_json(const KernelAnswer& answer);

}  // namespace kvroof
