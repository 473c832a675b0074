// Where the fields of CUPTI 13.0's activity records lie: facts of cupti_activity.h, checked against it where it is
// found (activity_layout_check.cpp), so that records are decoded and tested where there is no toolkit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvroof::cupti {

// The interface version that the layout is of (CUPTI_API_VERSION).
inline constexpr std::uint32_t kApiVersion = 130001;

enum Kind : std::uint32_t {  // CUpti_ActivityKind
  kMemcpy = 1,
  kMemset = 2,
  kDriver = 4,
  kRuntime = 5,
  kDevice = 8,
  kContext = 9,
  kConcurrentKernel = 10,
  kName = 11,
  kMarker = 12,
  kMarkerData = 13,
  kOverhead = 17,
  kEnvironment = 20,
  kCudaEvent = 36,
  kStream = 37,
  kSynchronization = 38,
  kExternalCorrelation = 39,
  kMemory2 = 49,
  kMemoryPool = 50,
  kGraphTrace = 51,
};

// Bytes of a record; every record starts with its kind and is a multiple of 8.
struct RecordSize {
  std::uint32_t kind;
  std::uint32_t bytes;
};
inline constexpr std::array<RecordSize, 19> kRecordSizes = {{
    {kMemcpy, 96},  {kMemset, 88},      {kDriver, 40},          {kRuntime, 40}, {kDevice, 184},
    {kContext, 32}, {kConcurrentKernel, 216}, {kName, 32},      {kMarker, 56},  {kMarkerData, 40},
    {kOverhead, 56}, {kEnvironment, 40}, {kCudaEvent, 56},      {kStream, 24},  {kSynchronization, 56},
    {kExternalCorrelation, 24}, {kMemory2, 128}, {kMemoryPool, 80}, {kGraphTrace, 56},
}};

// 0: a kind that is not known.
constexpr std::uint32_t record_size(std::uint32_t kind) {
  for (const RecordSize& record : kRecordSizes) {
    if (record.kind == kind) return record.bytes;
  }
  return 0;
}

template <class T, std::size_t kOffset>
struct Field {
  using Type = T;
  static constexpr std::size_t kAt = kOffset;
};
template <std::size_t kOffset>
using U8 = Field<std::uint8_t, kOffset>;
template <std::size_t kOffset>
using U16 = Field<std::uint16_t, kOffset>;
template <std::size_t kOffset>
using U32 = Field<std::uint32_t, kOffset>;
template <std::size_t kOffset>
using U64 = Field<std::uint64_t, kOffset>;

// CUpti_ActivityKernel10.
struct KernelFields {
  using Registers = U16<6>;
  using Start = U64<16>;
  using End = U64<24>;
  using Device = U32<40>;
  using Context = U32<44>;
  using Stream = U32<48>;
  using GridX = U32<52>;
  using GridY = U32<56>;
  using GridZ = U32<60>;
  using BlockX = U32<64>;
  using BlockY = U32<68>;
  using BlockZ = U32<72>;
  using StaticShared = U32<76>;
  using DynamicShared = U32<80>;
  using LocalPerThread = U32<84>;
  using Correlation = U32<92>;
  using GridId = U64<96>;
  using Name = U64<104>;  // a pointer
  using SharedExecuted = U32<140>;
  using GraphNode = U64<144>;
  using LocalTotal = U64<192>;
};

// CUpti_ActivityMemcpy6.
struct CopyFields {
  using Kind = U8<4>;
  using SourceKind = U8<5>;
  using TargetKind = U8<6>;
  using Bytes = U64<8>;
  using Start = U64<16>;
  using End = U64<24>;
  using Device = U32<32>;
  using Context = U32<36>;
  using Stream = U32<40>;
  using Correlation = U32<44>;
  using GraphNode = U64<64>;
};

// CUpti_ActivityMemset4.
struct FillFields {
  using Value = U32<4>;
  using Bytes = U64<8>;
  using Start = U64<16>;
  using End = U64<24>;
  using Device = U32<32>;
  using Context = U32<36>;
  using Stream = U32<40>;
  using Correlation = U32<44>;
  using MemoryKind = U16<50>;
  using GraphNode = U64<64>;
};

// CUpti_ActivityGraphTrace2.
struct GraphFields {
  using Correlation = U32<4>;
  using Start = U64<8>;
  using End = U64<16>;
  using Device = U32<24>;
  using Graph = U32<28>;
  using Context = U32<32>;
  using Stream = U32<36>;
};

// CUpti_ActivityAPI.
struct CallFields {
  using Function = U32<4>;
  using Start = U64<8>;
  using End = U64<16>;
  using Process = U32<24>;
  using Thread = U32<28>;
  using Correlation = U32<32>;
  using Result = U32<36>;
};

// CUpti_ActivityExternalCorrelation.
struct ExternalFields {
  using Kind = U32<4>;
  using Id = U64<8>;
  using Correlation = U32<16>;
};

// CUpti_ActivityMarker2. The object is a thread: its process and its thread.
struct MarkerFields {
  using Flags = U32<4>;
  using Time = U64<8>;
  using Id = U32<16>;
  using ObjectKind = U32<20>;
  using Process = U32<24>;
  using Thread = U32<28>;
  using Name = U64<40>;  // a pointer; null at an end
};
inline constexpr std::uint32_t kMarkerInstant = 1, kMarkerStart = 2, kMarkerEnd = 4;
inline constexpr std::uint32_t kObjectThread = 2;

// CUpti_ActivityMemory4.
struct MemoryFields {
  using Operation = U32<4>;
  using MemoryKind = U32<8>;
  using Correlation = U32<12>;
  using Address = U64<16>;
  using Bytes = U64<24>;
  using Time = U64<32>;
  using CodeAddress = U64<40>;
  using Process = U32<48>;
  using Device = U32<52>;
  using Context = U32<56>;
  using Stream = U32<60>;
  using Name = U64<64>;
  using InOrder = U32<72>;  // not 0: of a stream
  using PoolType = U32<80>;
  using PoolAddress = U64<88>;
  using ReleaseThreshold = U64<96>;
  using PoolBytes = U64<104>;  // of a local pool; of an imported one its owner's process
  using UsedBytes = U64<112>;
};
inline constexpr std::uint32_t kMemoryRelease = 2;

// CUpti_ActivityMemoryPool3.
struct PoolFields {
  using Operation = U32<4>;
  using PoolType = U32<8>;
  using Correlation = U32<12>;
  using Process = U32<16>;
  using Device = U32<20>;
  using LeastBytes = U64<24>;
  using PoolAddress = U64<32>;
  using PoolBytes = U64<40>;
  using ReleaseThreshold = U64<48>;
  using Time = U64<56>;
  using UsedBytes = U64<64>;
};

// CUpti_ActivityOverhead3.
struct OverheadFields {
  using Kind = U32<4>;
  using Start = U64<24>;
  using End = U64<32>;
};

// CUpti_ActivityEnvironment: what `Data` holds depends on `Kind`.
struct EnvironmentFields {
  using Device = U32<4>;
  using Time = U64<8>;
  using Kind = U32<16>;
  using SmClock = U32<20>;
  using MemoryClock = U32<24>;
  using Temperature = U32<20>;
  using Power = U32<20>;
};
inline constexpr std::uint32_t kEnvironmentSpeed = 1, kEnvironmentTemperature = 2, kEnvironmentPower = 3;

// CUpti_ActivityDevice5.
struct DeviceFields {
  using MemoryBytes = U64<16>;
  using L2Bytes = U32<28>;
  using Multiprocessors = U32<44>;
  using Major = U32<104>;
  using Minor = U32<108>;
  using Id = U32<112>;
  using Uuid = Field<std::array<std::uint8_t, 16>, 120>;
  using Name = U64<136>;  // a pointer
};

// Calls that launch kernels: recording these alone costs less than recording every call (cupti_*_cbid.h).
inline constexpr std::array<std::uint32_t, 10> kRuntimeLaunches = {211, 214, 269, 270, 311, 312, 430, 431, 505, 506};
inline constexpr std::array<std::uint32_t, 8> kDriverLaunches = {307, 442, 477, 478, 514, 515, 652, 653};
// CUpti_ExternalCorrelationKind: ids of a tool's own.
inline constexpr std::uint32_t kExternalCustom = 3;

}  // namespace kvroof::cupti
