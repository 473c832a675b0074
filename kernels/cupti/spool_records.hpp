// What a spool's records hold (profile_spool.hpp). A type keeps its fields for good, so that older spools are read.
#pragma once

#include <cstdint>
#include <string_view>

#include "traces/kernel_records.hpp"

namespace kvroof::spool {

// A note as a record among others.
struct Note {
  std::string_view key, value;
};

// Allocations of spools from before pools, and from before their calls were recorded.
struct BareMemory {
  MemoryRecord memory;
};
struct PooledMemory {
  MemoryRecord memory;
};

// The fields of a record: one list, for writing and for reading.
template <class Archive>
void fields(Archive& a, DeviceWork& r) {
  a(r.start_ns, r.end_ns, r.device, r.context, r.stream, r.correlation, r.graph_node, r.process);
}
template <class Archive>
void fields(Archive& a, KernelRecord& r) {
  fields(a, r.work);
  a(r.mangled_name, r.grid[0], r.grid[1], r.grid[2], r.block[0], r.block[1], r.block[2], r.registers, r.static_shared,
    r.dynamic_shared, r.shared_executed, r.local_per_thread, r.local_total, r.grid_id);
}
template <class Archive>
void fields(Archive& a, CopyRecord& r) {
  fields(a, r.work);
  a(r.bytes, r.kind, r.source_kind, r.target_kind);
}
template <class Archive>
void fields(Archive& a, FillRecord& r) {
  fields(a, r.work);
  a(r.bytes, r.value, r.memory_kind);
}
template <class Archive>
void fields(Archive& a, CallRecord& r) {
  a(r.start_ns, r.end_ns, r.process, r.thread, r.correlation, r.result, r.driver, r.name);
}
template <class Archive>
void fields(Archive& a, RangeRecord& r) {
  a(r.start_ns, r.end_ns, r.process, r.thread, r.text);
}
template <class Archive>
void fields(Archive& a, PoolState& r) {
  a(r.type, r.address, r.release_threshold, r.bytes, r.used_bytes, r.owner);
}
template <class Archive>
void bare_fields(Archive& a, MemoryRecord& r) {
  a(r.time_ns, r.process, r.device, r.context, r.address, r.bytes, r.memory_kind, r.release);
}
template <class Archive>
void fields(Archive& a, BareMemory& r) {
  bare_fields(a, r.memory);
}
template <class Archive>
void fields(Archive& a, PooledMemory& r) {
  bare_fields(a, r.memory);
  fields(a, r.memory.pool);
}
template <class Archive>
void fields(Archive& a, MemoryRecord& r) {
  bare_fields(a, r);
  fields(a, r.pool);
  a(r.code_address, r.correlation, r.stream, r.name);
}
template <class Archive>
void fields(Archive& a, PoolRecord& r) {
  a(r.time_ns, r.process, r.device, r.correlation, r.operation, r.least_bytes);
  fields(a, r.pool);
}
template <class Archive>
void fields(Archive& a, OverheadRecord& r) {
  a(r.start_ns, r.end_ns, r.kind);
}
template <class Archive>
void fields(Archive& a, EnvironmentRecord& r) {
  a(r.time_ns, r.device, r.sm_clock_mhz, r.memory_clock_mhz, r.power_mw, r.temperature_c);
}
template <class Archive>
void fields(Archive& a, DeviceRecord& r) {
  a(r.device, r.name, r.chip, r.memory_bytes, r.l2_bytes, r.multiprocessors, r.compute_major, r.compute_minor,
    r.process, r.uuid);
}
template <class Archive>
void fields(Archive& a, ProcessRecord& r) {
  a(r.process, r.name);
}
template <class Archive>
void fields(Archive& a, OperatorRecord& r) {
  a(r.graph_node, r.correlation, r.step, r.layer, r.name, r.cause, r.declared_bytes, r.declared_flops, r.sequence);
}
template <class Archive>
void fields(Archive& a, CounterRecord& r) {
  a(r.first_step, r.steps, r.time_ns, r.device, r.name, r.value);
}
template <class Archive>
void fields(Archive& a, Note& r) {
  a(r.key, r.value);
}

// The type of a record in the file; kText, kReason and kPassing are the file's own.
template <class Record>
inline constexpr std::uint8_t kType = 0;
template <>
inline constexpr std::uint8_t kType<KernelRecord> = 1;
template <>
inline constexpr std::uint8_t kType<CopyRecord> = 2;
template <>
inline constexpr std::uint8_t kType<FillRecord> = 3;
template <>
inline constexpr std::uint8_t kType<CallRecord> = 4;
template <>
inline constexpr std::uint8_t kType<RangeRecord> = 5;
template <>
inline constexpr std::uint8_t kType<BareMemory> = 6;
template <>
inline constexpr std::uint8_t kType<OverheadRecord> = 7;
template <>
inline constexpr std::uint8_t kType<EnvironmentRecord> = 8;
template <>
inline constexpr std::uint8_t kType<DeviceRecord> = 9;
template <>
inline constexpr std::uint8_t kType<OperatorRecord> = 10;
template <>
inline constexpr std::uint8_t kType<CounterRecord> = 11;
template <>
inline constexpr std::uint8_t kType<Note> = 12;
template <>
inline constexpr std::uint8_t kType<ProcessRecord> = 14;
template <>
inline constexpr std::uint8_t kType<PoolRecord> = 16;
template <>
inline constexpr std::uint8_t kType<PooledMemory> = 17;
template <>
inline constexpr std::uint8_t kType<MemoryRecord> = 18;
inline constexpr std::uint8_t kText = 0, kReason = 13, kPassing = 15;

}  // namespace kvroof::spool
