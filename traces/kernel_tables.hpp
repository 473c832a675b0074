// Tables of kernels.sqlite: those of Nsight Systems' export, and our own beside them.
#pragma once

#include <array>
#include <string_view>

namespace kvroof {

inline constexpr std::string_view kKernelTable = "CUPTI_ACTIVITY_KIND_KERNEL";
inline constexpr std::string_view kCopyTable = "CUPTI_ACTIVITY_KIND_MEMCPY";
inline constexpr std::string_view kFillTable = "CUPTI_ACTIVITY_KIND_MEMSET";
inline constexpr std::string_view kCallTable = "CUPTI_ACTIVITY_KIND_RUNTIME";
inline constexpr std::string_view kRangeTable = "NVTX_EVENTS";
inline constexpr std::string_view kMemoryTable = "CUDA_GPU_MEMORY_USAGE_EVENTS";
inline constexpr std::string_view kPoolTable = "CUDA_GPU_MEMORY_POOL_EVENTS";
inline constexpr std::string_view kDeviceTable = "TARGET_INFO_GPU";
inline constexpr std::string_view kDeviceNumberTable = "TARGET_INFO_CUDA_DEVICE";
inline constexpr std::string_view kProcessTable = "PROCESSES";
inline constexpr std::string_view kOverheadTable = "kvroof_overhead";
inline constexpr std::string_view kEnvironmentTable = "kvroof_environment";
inline constexpr std::string_view kOperatorTable = "kvroof_operator";
inline constexpr std::string_view kCounterTable = "kvroof_counter";
inline constexpr std::string_view kNoteTable = "kvroof_note";

// Values of eventType in kRangeTable.
inline constexpr int kMark = 34, kPushPop = 59, kStartEnd = 60;

// Ids of the export that pack a process and a thread.
inline std::uint32_t process_of(std::uint64_t global) { return static_cast<std::uint32_t>(global >> 24U & 0xffffffU); }
inline std::uint32_t thread_of(std::uint64_t global) { return static_cast<std::uint32_t>(global & 0xffffffU); }

// The version of the export whose names and columns these tables have.
inline constexpr std::array<int, 3> kNsightSchema = {3, 16, 1};

// In every trace: StringIds and the kernels.
extern const char* const kCommonTables;
// Of a trace with records of any kind: what tells readers of the export how to read it.
extern const char* const kExportTables;

// A table that is there once it has a row, and the columns that a recorder fills; the others stay NULL.
struct KernelTable {
  std::string_view name;
  std::string_view columns;   // as CREATE TABLE takes them
  std::string_view inserted;  // in the order of the values of a row
};
const KernelTable& kernel_table(std::string_view name);

}  // namespace kvroof
