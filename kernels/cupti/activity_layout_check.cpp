// Holds activity_layout.hpp against the toolkit's header. A header of another version stops the build: look at what
// changed, then move both together.
#if defined(KVROOF_CUPTI_HEADERS)

#include <cupti.h>

#include <cstddef>

#include "kernels/cupti/activity_layout.hpp"
#include "traces/kernel_records.hpp"

namespace kvroof::cupti {
namespace {

// Later headers of CUDA 13 keep these types by name; records only grow at their ends.
static_assert(CUPTI_API_VERSION / 10000 == kApiVersion / 10000, "the layout is CUPTI 13's");

template <class F, class T>
constexpr bool same(std::size_t offset, const T*) {
  return F::kAt == offset && sizeof(typename F::Type) == sizeof(T);
}
// The member's offset and size are those of the field.
#define KVROOF_SAME(Field, Record, member)                \
  static_assert(same<Field>(offsetof(Record, member),     \
                            static_cast<decltype(&static_cast<Record*>(nullptr)->member)>(nullptr)))

static_assert(record_size(CUPTI_ACTIVITY_KIND_MEMCPY) == sizeof(CUpti_ActivityMemcpy6));
static_assert(record_size(CUPTI_ACTIVITY_KIND_MEMSET) == sizeof(CUpti_ActivityMemset4));
static_assert(record_size(CUPTI_ACTIVITY_KIND_DRIVER) == sizeof(CUpti_ActivityAPI));
static_assert(record_size(CUPTI_ACTIVITY_KIND_RUNTIME) == sizeof(CUpti_ActivityAPI));
static_assert(record_size(CUPTI_ACTIVITY_KIND_DEVICE) == sizeof(CUpti_ActivityDevice5));
static_assert(record_size(CUPTI_ACTIVITY_KIND_CONTEXT) == sizeof(CUpti_ActivityContext3));
static_assert(record_size(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == sizeof(CUpti_ActivityKernel10));
static_assert(record_size(CUPTI_ACTIVITY_KIND_NAME) == sizeof(CUpti_ActivityName));
static_assert(record_size(CUPTI_ACTIVITY_KIND_MARKER) == sizeof(CUpti_ActivityMarker2));
static_assert(record_size(CUPTI_ACTIVITY_KIND_MARKER_DATA) == sizeof(CUpti_ActivityMarkerData2));
static_assert(record_size(CUPTI_ACTIVITY_KIND_OVERHEAD) == sizeof(CUpti_ActivityOverhead3));
static_assert(record_size(CUPTI_ACTIVITY_KIND_ENVIRONMENT) == sizeof(CUpti_ActivityEnvironment));
static_assert(record_size(CUPTI_ACTIVITY_KIND_CUDA_EVENT) == sizeof(CUpti_ActivityCudaEvent2));
static_assert(record_size(CUPTI_ACTIVITY_KIND_STREAM) == sizeof(CUpti_ActivityStream));
static_assert(record_size(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) == sizeof(CUpti_ActivitySynchronization2));
static_assert(record_size(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) == sizeof(CUpti_ActivityExternalCorrelation));
static_assert(record_size(CUPTI_ACTIVITY_KIND_MEMORY2) == sizeof(CUpti_ActivityMemory4));
static_assert(record_size(CUPTI_ACTIVITY_KIND_MEMORY_POOL) == sizeof(CUpti_ActivityMemoryPool3));
static_assert(record_size(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) == sizeof(CUpti_ActivityGraphTrace2));

KVROOF_SAME(KernelFields::Registers, CUpti_ActivityKernel10, registersPerThread);
KVROOF_SAME(KernelFields::Start, CUpti_ActivityKernel10, start);
KVROOF_SAME(KernelFields::End, CUpti_ActivityKernel10, end);
KVROOF_SAME(KernelFields::Device, CUpti_ActivityKernel10, deviceId);
KVROOF_SAME(KernelFields::Context, CUpti_ActivityKernel10, contextId);
KVROOF_SAME(KernelFields::Stream, CUpti_ActivityKernel10, streamId);
KVROOF_SAME(KernelFields::GridX, CUpti_ActivityKernel10, gridX);
KVROOF_SAME(KernelFields::GridY, CUpti_ActivityKernel10, gridY);
KVROOF_SAME(KernelFields::GridZ, CUpti_ActivityKernel10, gridZ);
KVROOF_SAME(KernelFields::BlockX, CUpti_ActivityKernel10, blockX);
KVROOF_SAME(KernelFields::BlockY, CUpti_ActivityKernel10, blockY);
KVROOF_SAME(KernelFields::BlockZ, CUpti_ActivityKernel10, blockZ);
KVROOF_SAME(KernelFields::StaticShared, CUpti_ActivityKernel10, staticSharedMemory);
KVROOF_SAME(KernelFields::DynamicShared, CUpti_ActivityKernel10, dynamicSharedMemory);
KVROOF_SAME(KernelFields::LocalPerThread, CUpti_ActivityKernel10, localMemoryPerThread);
KVROOF_SAME(KernelFields::Correlation, CUpti_ActivityKernel10, correlationId);
KVROOF_SAME(KernelFields::GridId, CUpti_ActivityKernel10, gridId);
KVROOF_SAME(KernelFields::Name, CUpti_ActivityKernel10, name);
KVROOF_SAME(KernelFields::SharedExecuted, CUpti_ActivityKernel10, sharedMemoryExecuted);
KVROOF_SAME(KernelFields::GraphNode, CUpti_ActivityKernel10, graphNodeId);
KVROOF_SAME(KernelFields::LocalTotal, CUpti_ActivityKernel10, localMemoryTotal_v2);
KVROOF_SAME(CopyFields::Kind, CUpti_ActivityMemcpy6, copyKind);
KVROOF_SAME(CopyFields::SourceKind, CUpti_ActivityMemcpy6, srcKind);
KVROOF_SAME(CopyFields::TargetKind, CUpti_ActivityMemcpy6, dstKind);
KVROOF_SAME(CopyFields::Bytes, CUpti_ActivityMemcpy6, bytes);
KVROOF_SAME(CopyFields::Start, CUpti_ActivityMemcpy6, start);
KVROOF_SAME(CopyFields::End, CUpti_ActivityMemcpy6, end);
KVROOF_SAME(CopyFields::Device, CUpti_ActivityMemcpy6, deviceId);
KVROOF_SAME(CopyFields::Context, CUpti_ActivityMemcpy6, contextId);
KVROOF_SAME(CopyFields::Stream, CUpti_ActivityMemcpy6, streamId);
KVROOF_SAME(CopyFields::Correlation, CUpti_ActivityMemcpy6, correlationId);
KVROOF_SAME(CopyFields::GraphNode, CUpti_ActivityMemcpy6, graphNodeId);
KVROOF_SAME(FillFields::Value, CUpti_ActivityMemset4, value);
KVROOF_SAME(FillFields::Bytes, CUpti_ActivityMemset4, bytes);
KVROOF_SAME(FillFields::Start, CUpti_ActivityMemset4, start);
KVROOF_SAME(FillFields::End, CUpti_ActivityMemset4, end);
KVROOF_SAME(FillFields::Device, CUpti_ActivityMemset4, deviceId);
KVROOF_SAME(FillFields::Context, CUpti_ActivityMemset4, contextId);
KVROOF_SAME(FillFields::Stream, CUpti_ActivityMemset4, streamId);
KVROOF_SAME(FillFields::Correlation, CUpti_ActivityMemset4, correlationId);
KVROOF_SAME(FillFields::MemoryKind, CUpti_ActivityMemset4, memoryKind);
KVROOF_SAME(FillFields::GraphNode, CUpti_ActivityMemset4, graphNodeId);
KVROOF_SAME(GraphFields::Correlation, CUpti_ActivityGraphTrace2, correlationId);
KVROOF_SAME(GraphFields::Start, CUpti_ActivityGraphTrace2, start);
KVROOF_SAME(GraphFields::End, CUpti_ActivityGraphTrace2, end);
KVROOF_SAME(GraphFields::Device, CUpti_ActivityGraphTrace2, deviceId);
KVROOF_SAME(GraphFields::Graph, CUpti_ActivityGraphTrace2, graphId);
KVROOF_SAME(GraphFields::Context, CUpti_ActivityGraphTrace2, contextId);
KVROOF_SAME(GraphFields::Stream, CUpti_ActivityGraphTrace2, streamId);
KVROOF_SAME(CallFields::Function, CUpti_ActivityAPI, cbid);
KVROOF_SAME(CallFields::Start, CUpti_ActivityAPI, start);
KVROOF_SAME(CallFields::End, CUpti_ActivityAPI, end);
KVROOF_SAME(CallFields::Process, CUpti_ActivityAPI, processId);
KVROOF_SAME(CallFields::Thread, CUpti_ActivityAPI, threadId);
KVROOF_SAME(CallFields::Correlation, CUpti_ActivityAPI, correlationId);
KVROOF_SAME(CallFields::Result, CUpti_ActivityAPI, returnValue);
KVROOF_SAME(ExternalFields::Kind, CUpti_ActivityExternalCorrelation, externalKind);
KVROOF_SAME(ExternalFields::Id, CUpti_ActivityExternalCorrelation, externalId);
KVROOF_SAME(ExternalFields::Correlation, CUpti_ActivityExternalCorrelation, correlationId);
KVROOF_SAME(MarkerFields::Flags, CUpti_ActivityMarker2, flags);
KVROOF_SAME(MarkerFields::Time, CUpti_ActivityMarker2, timestamp);
KVROOF_SAME(MarkerFields::Id, CUpti_ActivityMarker2, id);
KVROOF_SAME(MarkerFields::ObjectKind, CUpti_ActivityMarker2, objectKind);
KVROOF_SAME(MarkerFields::Process, CUpti_ActivityMarker2, objectId.pt.processId);
KVROOF_SAME(MarkerFields::Thread, CUpti_ActivityMarker2, objectId.pt.threadId);
KVROOF_SAME(MarkerFields::Name, CUpti_ActivityMarker2, name);
KVROOF_SAME(MemoryFields::Operation, CUpti_ActivityMemory4, memoryOperationType);
KVROOF_SAME(MemoryFields::MemoryKind, CUpti_ActivityMemory4, memoryKind);
KVROOF_SAME(MemoryFields::Address, CUpti_ActivityMemory4, address);
KVROOF_SAME(MemoryFields::Bytes, CUpti_ActivityMemory4, bytes);
KVROOF_SAME(MemoryFields::Time, CUpti_ActivityMemory4, timestamp);
KVROOF_SAME(MemoryFields::Correlation, CUpti_ActivityMemory4, correlationId);
KVROOF_SAME(MemoryFields::CodeAddress, CUpti_ActivityMemory4, PC);
KVROOF_SAME(MemoryFields::Stream, CUpti_ActivityMemory4, streamId);
KVROOF_SAME(MemoryFields::Name, CUpti_ActivityMemory4, name);
KVROOF_SAME(MemoryFields::InOrder, CUpti_ActivityMemory4, isAsync);
KVROOF_SAME(MemoryFields::Process, CUpti_ActivityMemory4, processId);
KVROOF_SAME(MemoryFields::Device, CUpti_ActivityMemory4, deviceId);
KVROOF_SAME(MemoryFields::Context, CUpti_ActivityMemory4, contextId);
KVROOF_SAME(MemoryFields::PoolType, CUpti_ActivityMemory4, memoryPoolConfig.memoryPoolType);
KVROOF_SAME(MemoryFields::PoolAddress, CUpti_ActivityMemory4, memoryPoolConfig.address);
KVROOF_SAME(MemoryFields::ReleaseThreshold, CUpti_ActivityMemory4, memoryPoolConfig.releaseThreshold);
KVROOF_SAME(MemoryFields::PoolBytes, CUpti_ActivityMemory4, memoryPoolConfig.pool.size);
KVROOF_SAME(MemoryFields::PoolBytes, CUpti_ActivityMemory4, memoryPoolConfig.pool.processId);
KVROOF_SAME(MemoryFields::UsedBytes, CUpti_ActivityMemory4, memoryPoolConfig.utilizedSize);
KVROOF_SAME(PoolFields::Operation, CUpti_ActivityMemoryPool3, memoryPoolOperationType);
KVROOF_SAME(PoolFields::PoolType, CUpti_ActivityMemoryPool3, memoryPoolType);
KVROOF_SAME(PoolFields::Correlation, CUpti_ActivityMemoryPool3, correlationId);
KVROOF_SAME(PoolFields::Process, CUpti_ActivityMemoryPool3, processId);
KVROOF_SAME(PoolFields::Device, CUpti_ActivityMemoryPool3, deviceId);
KVROOF_SAME(PoolFields::LeastBytes, CUpti_ActivityMemoryPool3, minBytesToKeep);
KVROOF_SAME(PoolFields::PoolAddress, CUpti_ActivityMemoryPool3, address);
KVROOF_SAME(PoolFields::PoolBytes, CUpti_ActivityMemoryPool3, size);
KVROOF_SAME(PoolFields::ReleaseThreshold, CUpti_ActivityMemoryPool3, releaseThreshold);
KVROOF_SAME(PoolFields::Time, CUpti_ActivityMemoryPool3, timestamp);
KVROOF_SAME(PoolFields::UsedBytes, CUpti_ActivityMemoryPool3, utilizedSize);
KVROOF_SAME(OverheadFields::Kind, CUpti_ActivityOverhead3, overheadKind);
KVROOF_SAME(OverheadFields::Start, CUpti_ActivityOverhead3, start);
KVROOF_SAME(OverheadFields::End, CUpti_ActivityOverhead3, end);
KVROOF_SAME(EnvironmentFields::Device, CUpti_ActivityEnvironment, deviceId);
KVROOF_SAME(EnvironmentFields::Time, CUpti_ActivityEnvironment, timestamp);
KVROOF_SAME(EnvironmentFields::Kind, CUpti_ActivityEnvironment, environmentKind);
KVROOF_SAME(EnvironmentFields::SmClock, CUpti_ActivityEnvironment, data.speed.smClock);
KVROOF_SAME(EnvironmentFields::MemoryClock, CUpti_ActivityEnvironment, data.speed.memoryClock);
KVROOF_SAME(EnvironmentFields::Temperature, CUpti_ActivityEnvironment, data.temperature.gpuTemperature);
KVROOF_SAME(EnvironmentFields::Power, CUpti_ActivityEnvironment, data.power.power);
KVROOF_SAME(DeviceFields::MemoryBytes, CUpti_ActivityDevice5, globalMemorySize);
KVROOF_SAME(DeviceFields::L2Bytes, CUpti_ActivityDevice5, l2CacheSize);
KVROOF_SAME(DeviceFields::Multiprocessors, CUpti_ActivityDevice5, numMultiprocessors);
KVROOF_SAME(DeviceFields::Major, CUpti_ActivityDevice5, computeCapabilityMajor);
KVROOF_SAME(DeviceFields::Minor, CUpti_ActivityDevice5, computeCapabilityMinor);
KVROOF_SAME(DeviceFields::Id, CUpti_ActivityDevice5, id);
KVROOF_SAME(DeviceFields::Uuid, CUpti_ActivityDevice5, uuid);
KVROOF_SAME(DeviceFields::Name, CUpti_ActivityDevice5, name);

static_assert(kMarkerInstant == CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS);
static_assert(kMarkerStart == CUPTI_ACTIVITY_FLAG_MARKER_START && kMarkerEnd == CUPTI_ACTIVITY_FLAG_MARKER_END);
static_assert(kObjectThread == CUPTI_ACTIVITY_OBJECT_THREAD);
static_assert(kMemoryRelease == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
static_assert(kLocalPool == CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL);
static_assert(kImportedPool == CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED);
static_assert(kPoolTrimmed == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED);
static_assert(kEnvironmentSpeed == CUPTI_ACTIVITY_ENVIRONMENT_SPEED);
static_assert(kEnvironmentTemperature == CUPTI_ACTIVITY_ENVIRONMENT_TEMPERATURE);
static_assert(kEnvironmentPower == CUPTI_ACTIVITY_ENVIRONMENT_POWER);
static_assert(kExternalCustom == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
static_assert(kRuntimeLaunches[0] == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
static_assert(kRuntimeLaunches[2] == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000);
static_assert(kRuntimeLaunches[9] == CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000);
static_assert(kDriverLaunches[0] == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
static_assert(kDriverLaunches[2] == CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel);
static_assert(kDriverLaunches[7] == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz);

}  // namespace
}  // namespace kvroof::cupti

#endif
