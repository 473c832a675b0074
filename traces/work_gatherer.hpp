// Device work out of the rows of a query: what the engine meant by a kernel comes in a row for each cause.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "traces/kernel_reader.hpp"
#include "traces/kernel_tables.hpp"
#include "traces/sqlite.hpp"

namespace kvroof {

// Gathers the operator records of one kernel, which come one after another, into one row.
class WorkGatherer {
 public:
  using GpuOf = std::function<std::optional<std::uint32_t>(std::uint32_t process, std::uint32_t device)>;
  WorkGatherer(const std::function<void(const WorkRow&)>& visit, GpuOf gpu_of)
      : visit_(visit), gpu_of_(std::move(gpu_of)) {}

  void take(const SqliteRows& rows, std::string_view name, std::string_view purpose) {
    const auto key = std::pair(rows.integer(0), rows.integer(11));
    if (!any_ || key != key_) {
      flush();
      key_ = key;
      any_ = true;
      begin(rows, name);
      row_.purpose = purpose;
    }
    if (!rows.null(12)) add_meaning(rows);
  }
  void flush() {
    if (!std::exchange(any_, false)) return;
    if (row_.meaning) {
      const DeviceWork& w = row_.work;
      std::uint64_t& ended = ended_[{w.process, w.device, w.context, w.stream}];
      row_.waited_until_ns = ended;
      ended = std::max(ended, w.end_ns);
    }
    visit_(row_);
  }

 private:
  void begin(const SqliteRows& rows, std::string_view name) {
    row_ = {};
    row_.kind = static_cast<WorkKind>(rows.integer(0));
    row_.work = {u64(rows, 1), u64(rows, 2), u32(rows, 3), u32(rows, 4), u32(rows, 5), u32(rows, 6), u64(rows, 7),
                 process_of(u64(rows, 8))};
    row_.gpu = gpu_of_(row_.work.process, row_.work.device);
    row_.name = name;
    if (row_.kind != WorkKind::kKernel) row_.bytes = u64(rows, 10);
  }
  void add_meaning(const SqliteRows& rows) {
    if (!row_.meaning) {
      operation_ = rows.text(12);
      cause_ = rows.text(13);
      row_.meaning = KernelMeaning{rows.null(14) ? kNoStep : u32(rows, 14),
                                   rows.null(15) ? -1 : static_cast<std::int32_t>(rows.integer(15)),
                                   operation_, cause_, {}, 0};
    }
    const std::string_view cause = rows.text(13);
    const auto it = std::find(kCauseNames.begin(), kCauseNames.end(), cause);
    const auto index = it == kCauseNames.end() ? static_cast<std::size_t>(Cause::kActivations)
                                               : static_cast<std::size_t>(it - kCauseNames.begin());
    row_.meaning->declared.bytes[index] += u64(rows, 16);
    row_.meaning->flops += u64(rows, 17);
  }

  static std::uint64_t u64(const SqliteRows& rows, int column) {
    return static_cast<std::uint64_t>(rows.integer(column));
  }
  static std::uint32_t u32(const SqliteRows& rows, int column) {
    return static_cast<std::uint32_t>(rows.integer(column));
  }

  const std::function<void(const WorkRow&)>& visit_;
  GpuOf gpu_of_;
  WorkRow row_;
  std::string operation_, cause_;
  std::pair<std::int64_t, std::int64_t> key_;
  bool any_ = false;
  std::map<std::array<std::uint32_t, 4>, std::uint64_t> ended_;  // kernels with a meaning, by where they are queued
};

}  // namespace kvroof
