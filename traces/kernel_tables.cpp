#include "traces/kernel_tables.hpp"

#include <algorithm>

#include "sim/core/error.hpp"

namespace kvroof {

const char* const kCommonTables = R"(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
  start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER,
  cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
  staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
  localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
  sharedMemoryLimitConfig INTEGER);
)";

const char* const kExportTables = R"(
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES
  (0, 'CUDA_MEMCPY_KIND_UNKNOWN', 'Unknown'), (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device'),
  (2, 'CUDA_MEMCPY_KIND_DTOH', 'Device-to-Host'), (3, 'CUDA_MEMCPY_KIND_HTOA', 'Host-to-Array'),
  (4, 'CUDA_MEMCPY_KIND_ATOH', 'Array-to-Host'), (5, 'CUDA_MEMCPY_KIND_ATOA', 'Array-to-Array'),
  (6, 'CUDA_MEMCPY_KIND_ATOD', 'Array-to-Device'), (7, 'CUDA_MEMCPY_KIND_DTOA', 'Device-to-Array'),
  (8, 'CUDA_MEMCPY_KIND_DTOD', 'Device-to-Device'), (9, 'CUDA_MEMCPY_KIND_HTOH', 'Host-to-Host'),
  (10, 'CUDA_MEMCPY_KIND_PTOP', 'Peer-to-Peer'), (11, 'CUDA_MEMCPY_KIND_UVM_HTOD', 'Unified Host-to-Device'),
  (12, 'CUDA_MEMCPY_KIND_UVM_DTOH', 'Unified Device-to-Host'),
  (13, 'CUDA_MEMCPY_KIND_UVM_DTOD', 'Unified Device-to-Device');
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES
  (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'), (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'),
  (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device'), (3, 'CUDA_MEMOPR_MEMORY_KIND_ARRAY', 'Array'),
  (4, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED', 'Managed'), (5, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC', 'Device Static'),
  (6, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC', 'Managed Static'),
  (7, 'CUDA_MEMOPR_MEMORY_KIND_UNKNOWN', 'Unknown');
)";

namespace {

constexpr std::array kTables = {
    KernelTable{kKernelTable, "",
                "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName, "
                "mangledName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, "
                "dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId, sharedMemoryExecuted, "
                "graphNodeId"},
    KernelTable{kCopyTable,
                "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
                "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
                "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, "
                "dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, "
                "dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER",
                "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, "
                "dstKind, graphNodeId"},
    KernelTable{kFillTable,
                "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
                "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
                "value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER",
                "start, end, deviceId, contextId, streamId, correlationId, globalPid, value, bytes, graphNodeId, "
                "memKind"},
    KernelTable{kCallTable,
                "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
                "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
                "start, end, eventClass, globalTid, correlationId, nameId, returnValue"},
    KernelTable{kRangeTable,
                "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, "
                "color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, "
                "uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, "
                "floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
                "start, end, eventType, text, globalTid"},
    KernelTable{kMemoryTable,
                "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
                "contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL, "
                "memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER, "
                "streamId INTEGER, localMemoryPoolAddress INTEGER, localMemoryPoolReleaseThreshold INTEGER, "
                "localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER, importedMemoryPoolAddress INTEGER, "
                "importedMemoryPoolProcessId INTEGER",
                "start, globalPid, deviceId, contextId, address, pc, bytes, memKind, memoryOperationType, name, "
                "correlationId, streamId, localMemoryPoolAddress, localMemoryPoolReleaseThreshold, "
                "localMemoryPoolSize, localMemoryPoolUtilizedSize, importedMemoryPoolAddress, "
                "importedMemoryPoolProcessId"},
    KernelTable{kPoolTable,
                "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
                "address INTEGER NOT NULL, operationType INTEGER NOT NULL, poolType INTEGER NOT NULL, "
                "correlationId INTEGER, minBytesToKeep INTEGER, localMemoryPoolReleaseThreshold INTEGER, "
                "localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER",
                "start, globalPid, deviceId, address, operationType, poolType, correlationId, minBytesToKeep, "
                "localMemoryPoolReleaseThreshold, localMemoryPoolSize, localMemoryPoolUtilizedSize"},
    KernelTable{kDeviceTable,
                "id INTEGER, name TEXT, busLocation TEXT, l2CacheSize INTEGER, totalMemory INTEGER, "
                "memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, uuid TEXT, chipName TEXT, "
                "maxShmemPerSm INTEGER, maxRegistersPerSm INTEGER, threadsPerWarp INTEGER, maxWarpsPerSm INTEGER, "
                "maxBlocksPerSm INTEGER, computeMajor INTEGER, computeMinor INTEGER",
                "id, name, l2CacheSize, totalMemory, smCount, uuid, chipName, computeMajor, computeMinor"},
    KernelTable{kDeviceNumberTable,
                "gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT NOT NULL, "
                "numMultiprocessors INTEGER NOT NULL",
                "gpuId, cudaId, pid, uuid, numMultiprocessors"},
    KernelTable{kProcessTable, "globalPid INTEGER, pid INTEGER, name TEXT", "globalPid, pid, name"},
    KernelTable{kOverheadTable, "start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, kind INTEGER NOT NULL",
                "start_ns, end_ns, kind"},
    KernelTable{kEnvironmentTable,
                "time_ns INTEGER NOT NULL, device INTEGER NOT NULL, sm_clock_mhz INTEGER, memory_clock_mhz INTEGER, "
                "power_mw INTEGER, temperature_c INTEGER",
                "time_ns, device, sm_clock_mhz, memory_clock_mhz, power_mw, temperature_c"},
    KernelTable{kOperatorTable,
                "correlation INTEGER NOT NULL, graph_node INTEGER NOT NULL, step INTEGER, layer INTEGER, "
                "name TEXT NOT NULL, cause TEXT NOT NULL, declared_bytes INTEGER NOT NULL, declared_flops INTEGER, "
                "sequence INTEGER",
                "correlation, graph_node, step, layer, name, cause, declared_bytes, declared_flops, sequence"},
    KernelTable{kCounterTable,
                "first_step INTEGER, steps INTEGER NOT NULL, time_ns INTEGER, device INTEGER NOT NULL, "
                "name TEXT NOT NULL, value REAL NOT NULL, layer INTEGER, operator TEXT, declared_bytes INTEGER",
                "first_step, steps, time_ns, device, name, value, layer, operator, declared_bytes"},
    KernelTable{kNoteTable, "key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL", "key, value"},
};

}  // namespace

const KernelTable& kernel_table(std::string_view name) {
  const auto* const it =
      std::find_if(kTables.begin(), kTables.end(), [&](const KernelTable& t) { return t.name == name; });
  check(it != kTables.end(), "only tables of the list are written");
  return *it;
}

}  // namespace kvroof
