// A libcupti.so.13 without a GPU: answers the recorder's calls in the order that the real one's header asks for, and
// fills its buffers, records of the header's own types, as a made program or the emulator asks.
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/made_cuda/made.hpp"

namespace made {
namespace {

struct State {
  int complaints = 0;
  bool subscribed = false, any_record = false;
  bool by_thread = true;  // buffers
  CUpti_CallbackFunc callback = nullptr;
  void* callback_data = nullptr;
  CUpti_TimestampCallbackFunc clock = nullptr;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::set<std::uint32_t> kinds, callbacks;
  std::set<std::pair<bool, std::uint32_t>> calls;  // of the driver, and which
  std::vector<std::uint64_t> pushed;
  std::recursive_mutex mutex;  // of the buffer: a thread of the recorder flushes while the program launches
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, used = 0;
  std::size_t dropped = 0;
  long to_lose = wish("lost");
  std::uint64_t nodes = 0;
  std::uint32_t correlation = 0;
};

State& state() {
  static State* const s = new State;  // outlives every exit handler
  return *s;
}

std::uint64_t now(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec);
}

// `cut`: as if the buffer had come back before its last record was whole.
void hand_over(bool cut = false) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.buffer == nullptr) return;
  s.complete(nullptr, 0, s.buffer, s.size, s.used - (cut ? 8 : 0));
  s.buffer = nullptr;
  s.used = 0;
}

template <class Record>
void put(const Record& record) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.any_record = true;
  if (s.kinds.count(record.kind) == 0 && record.kind != CUPTI_ACTIVITY_KIND_RUNTIME &&
      record.kind != CUPTI_ACTIVITY_KIND_DRIVER) {
    return;
  }
  if (s.buffer != nullptr && s.used + sizeof record > s.size) hand_over();
  if (s.buffer == nullptr) {
    std::size_t most = 0;
    s.request(&s.buffer, &s.size, &most);
    for (std::size_t i = 0; s.buffer != nullptr && i < s.size; ++i) {
      if (s.buffer[i] == 0) continue;
      complain("the buffers' request", "a buffer that is not of zeros");
      break;
    }
  }
  if (s.buffer == nullptr || (s.to_lose > 0 && record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) {
    --s.to_lose;
    ++s.dropped;
    return;
  }
  std::memcpy(s.buffer + s.used, &record, sizeof record);
  s.used += sizeof record;
}

// A launching call, as its driver's and its runtime's record: an id that was pushed precedes each.
void put_call(bool driver, std::uint32_t function) {
  State& s = state();
  if (s.calls.count({driver, function}) == 0) return;
  if (!s.pushed.empty() && wish("no_ids") < 0) {
    CUpti_ActivityExternalCorrelation id{};
    id.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    id.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    id.externalId = s.pushed.back();
    id.correlationId = s.correlation;
    put(id);
  }
  CUpti_ActivityAPI call{};
  call.kind = driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  call.cbid = function;
  call.start = call.end = time_of(now(CLOCK_MONOTONIC));
  call.processId = static_cast<std::uint32_t>(getpid());
  call.threadId = call.processId;
  call.correlationId = s.correlation;
  put(call);
}

CUptiResult set(std::set<std::uint32_t>& on, bool enable, std::uint32_t what, const char* function) {
  if (enable ? on.insert(what).second : on.erase(what) == 1) return CUPTI_SUCCESS;
  return complain(function, enable ? "enabled twice" : "disabled and was not enabled");
}

CUptiResult set_call(bool driver, std::uint32_t function, bool on) {
  if (on) {
    state().calls.insert({driver, function});
  } else {
    state().calls.erase({driver, function});
  }
  return CUPTI_SUCCESS;
}

}  // namespace

CUptiResult complain(const char* function, const char* what, CUptiResult result) {
  ++state().complaints;
  std::fprintf(stderr, "made CUPTI: %s: %s\n", function, what);
  return result;
}

long wish(const char* name) {
  const char* const text = std::getenv("MADE_CUPTI");
  const std::string wishes = "," + std::string(text == nullptr ? "" : text), wanted = "," + std::string(name) + "=";
  const std::size_t at = wishes.find(wanted);
  return at == std::string::npos ? -1 : std::atol(wishes.c_str() + at + wanted.size());
}

std::uint64_t time_of(std::uint64_t monotonic_ns, bool own_clock) {
  const std::uint64_t here = state().clock != nullptr && !own_clock ? state().clock() : now(CLOCK_REALTIME);
  return here - (now(CLOCK_MONOTONIC) - monotonic_ns);
}

}  // namespace made

using namespace made;

// What CUPTI answers before it does anything: a test's wish.
#define MADE_ANSWER()                                            \
  if (const long wished = wish(__func__); wished >= 0) return static_cast<CUptiResult>(wished)

extern "C" {

int made_complaints() { return state().complaints; }

void made_call(bool graph) {
  ++state().correlation;
  put_call(true, graph ? CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch : CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  put_call(false, graph ? CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000
                        : CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
}
void made_kernel(std::uint64_t node, std::uint64_t start, std::uint64_t end, const char* name) {
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = time_of(start);
  kernel.end = time_of(start) + (end - start);
  kernel.contextId = 1;
  kernel.streamId = 7;
  kernel.correlationId = state().correlation;
  kernel.graphNodeId = node != 0 && wish("other_nodes") > 0 ? node + 1'000'000 : node;
  kernel.name = name;
  put(kernel);
  count_kernel(start, end);
}
void made_copy(bool to_device, std::uint64_t bytes, std::uint64_t start, std::uint64_t end) {
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = to_device ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD : CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  copy.bytes = bytes;
  copy.start = time_of(start);
  copy.end = time_of(start) + (end - start);
  copy.correlationId = ++state().correlation;
  put(copy);
}
// Times as they are given.
void made_launch(std::uint32_t correlation, std::uint64_t start, std::uint64_t end, const char* name) {
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = start;
  kernel.end = end;
  kernel.correlationId = correlation;
  kernel.name = name;
  put(kernel);
}
void made_mark(std::uint64_t time, const char* text) {
  CUpti_ActivityMarker2 mark{};
  mark.kind = CUPTI_ACTIVITY_KIND_MARKER;
  mark.flags = CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS;
  mark.timestamp = time;
  mark.name = text;
  put(mark);
}
// A local pool's life: created at `time`, an allocation of it, trimmed, destroyed, a nanosecond apart.
void made_pool(std::uint64_t time) {
  CUpti_ActivityMemoryPool3 pool{};
  pool.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
  pool.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  pool.processId = static_cast<std::uint32_t>(getpid());
  pool.address = 0xe000;
  pool.size = 2 << 20;
  pool.minBytesToKeep = 4096;
  pool.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED;
  pool.timestamp = time;
  put(pool);
  CUpti_ActivityMemory4 memory{};
  memory.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  memory.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  memory.processId = pool.processId;
  memory.bytes = 1 << 20;
  memory.timestamp = time + 1;
  memory.memoryPoolConfig.memoryPoolType = pool.memoryPoolType;
  memory.memoryPoolConfig.address = pool.address;
  memory.memoryPoolConfig.pool.size = pool.size;
  memory.memoryPoolConfig.utilizedSize = memory.bytes;
  put(memory);
  pool.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED;
  pool.timestamp = time + 2;
  put(pool);
  pool.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED;
  pool.timestamp = time + 3;
  put(pool);
}
// A node that is created (of 0) or cloned: its number.
std::uint64_t made_node(std::uint64_t of) {
  State& s = state();
  const std::uint32_t id = of == 0 ? CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED : CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  CUpti_GraphData graph{};
  graph.node = reinterpret_cast<CUgraphNode>(++s.nodes);
  graph.originalNode = reinterpret_cast<CUgraphNode>(of);
  CUpti_ResourceData data{};
  data.resourceDescriptor = &graph;
  const std::uint64_t node = s.nodes;
  if (s.callbacks.count(id) == 1) s.callback(s.callback_data, CUPTI_CB_DOMAIN_RESOURCE, id, &data);
  return node;
}

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = wish("version") > 0 ? static_cast<std::uint32_t>(wish("version")) : CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "made";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain, std::uint32_t, const char** name) {
  *name = "cudaLaunchKernel";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle*, CUpti_CallbackFunc callback, void* data,
                              CUpti_SubscriberParams* p) {
  MADE_ANSWER();
  State& s = state();
  if (p->structSize != CUpti_SubscriberParams_STRUCT_SIZE || p->oldSubscriberSize < CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN) {
    return complain(__func__, "a block of another size", CUPTI_ERROR_INVALID_PARAMETER);
  }
  if (s.subscribed || wish("subscriber") >= 0) {
    std::strcpy(p->oldSubscriberName, wish("subscriber") == 2 ? "CUPTI for <not provided>" : "CUPTI for another");
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  s.subscribed = true;
  s.callback = callback;
  s.callback_data = data;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  State& s = state();
  if (!s.subscribed || !s.kinds.empty() || !s.calls.empty() || s.buffer != nullptr) {
    return complain(__func__, "no subscriber, or kinds, calls or a buffer of it are left");
  }
  s.subscribed = false;
  s.callbacks.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(std::uint32_t on, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
  if (!state().subscribed || domain != CUPTI_CB_DOMAIN_RESOURCE) return complain(__func__, "no subscriber");
  return set(state().callbacks, on != 0, id, __func__);
}
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, std::uint64_t* id) {
  *id = reinterpret_cast<std::uintptr_t>(node);
  return CUPTI_SUCCESS;
}
// Once, and before any kind is enabled: records of two clocks are of no use.
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  if (state().clock != nullptr || !state().kinds.empty()) return complain(__func__, "not once, before every kind");
  state().clock = clock;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, std::size_t* size, void* value) {
  const bool by_thread = attribute == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER;
  const bool flag = attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER || by_thread;
  if (by_thread && wish("refuse_shared") >= 0) return CUPTI_ERROR_INVALID_PARAMETER;
  if (by_thread && state().request != nullptr) return complain(__func__, "after the buffers were registered");
  if (*size != (flag ? sizeof(std::uint8_t) : sizeof(std::size_t)) || state().any_record) {
    return complain(__func__, "a value of another size, or after the first record", CUPTI_ERROR_INVALID_PARAMETER);
  }
  if (by_thread) state().by_thread = *static_cast<std::uint8_t*>(value) != 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (state().request != nullptr) return complain(__func__, "twice");
  state().request = request;
  state().complete = complete;
  if (state().by_thread && wish("many_threads") >= 0) complain(__func__, "each thread takes a buffer");
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  State& s = state();
  if (wish("refuse_kind") == static_cast<long>(kind)) return CUPTI_ERROR_NOT_COMPATIBLE;
  if (s.request == nullptr || kind == CUPTI_ACTIVITY_KIND_KERNEL) {
    return complain(__func__, "without buffers, or the kind that runs kernels one after another");
  }
  const CUptiResult result = set(s.kinds, true, kind, __func__);
  if (kind == CUPTI_ACTIVITY_KIND_DEVICE && result == CUPTI_SUCCESS) {
    CUpti_ActivityDevice5 device{};
    device.kind = CUPTI_ACTIVITY_KIND_DEVICE;
    device.name = "NVIDIA H200";
    device.numMultiprocessors = 132;
    const char* const number = std::getenv("MADE_GPU");  // which of the machine's GPUs the process sees
    std::memset(&device.uuid, number == nullptr ? 0xa0 : 0xa0 + std::atoi(number), sizeof device.uuid);
    put(device);
    state().any_record = false;
  }
  return result;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) { return set(state().kinds, false, kind, __func__); }
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, std::uint8_t on) {
  return set_call(false, id, on != 0);
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, std::uint8_t on) { return set_call(true, id, on != 0); }
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t id) {
  state().pushed.push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t* id) {
  if (state().pushed.empty()) return complain(__func__, "nothing was pushed", CUPTI_ERROR_QUEUE_EMPTY);
  *id = state().pushed.back();
  state().pushed.pop_back();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(std::uint32_t flag) {
  hand_over(flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED && wish("cut") >= 0);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = std::exchange(state().dropped, 0);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, CUpti_Activity**) {
  return CUPTI_ERROR_MAX_LIMIT_REACHED;
}
}
