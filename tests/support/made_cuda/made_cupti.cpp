// A libcupti.so.13 without a GPU: answers the recorder's calls, and fills its buffers as a made program asks.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using Request = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* most);
using Complete = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t size,
                          std::size_t used);

Request g_request = nullptr;
Complete g_complete = nullptr;
std::uint8_t* g_buffer = nullptr;
std::size_t g_size = 0, g_used = 0;

void hand_over() {
  if (g_buffer != nullptr) g_complete(nullptr, 0, g_buffer, g_size, g_used);
  g_buffer = nullptr;
}

template <std::size_t kBytes>
void put(const std::array<std::uint8_t, kBytes>& record) {
  if (g_request == nullptr) return;
  if (g_buffer != nullptr && g_used + kBytes > g_size) hand_over();
  if (g_buffer == nullptr) {
    std::size_t most = 0;
    g_used = 0;
    g_request(&g_buffer, &g_size, &most);
  }
  if (g_buffer == nullptr) return;
  std::memcpy(g_buffer + g_used, record.data(), kBytes);
  g_used += kBytes;
}

template <class T, std::size_t kBytes>
void set(std::array<std::uint8_t, kBytes>& record, std::size_t offset, T value) {
  std::memcpy(record.data() + offset, &value, sizeof value);
}

}  // namespace

extern "C" {

// Offsets of cupti_activity.h of 13.0: a kernel (kind 10) and an NVTX mark (kind 12).
void made_launch(std::uint32_t correlation, std::uint64_t start, std::uint64_t end, const char* name) {
  std::array<std::uint8_t, 216> kernel{};
  set<std::uint32_t>(kernel, 0, 10);
  set(kernel, 16, start);
  set(kernel, 24, end);
  set(kernel, 92, correlation);
  set(kernel, 104, name);
  put(kernel);
}
void made_mark(std::uint64_t time, const char* text) {
  std::array<std::uint8_t, 56> mark{};
  set<std::uint32_t>(mark, 0, 12);
  set<std::uint32_t>(mark, 4, 1);
  set(mark, 8, time);
  set(mark, 40, text);
  put(mark);
}

int cuptiGetVersion(std::uint32_t* version) {
  *version = 130001;
  return 0;
}
int cuptiGetResultString(int, const char** text) {
  *text = "made";
  return 0;
}
int cuptiGetCallbackName(int, std::uint32_t, const char** name) {
  *name = "cudaLaunchKernel";
  return 0;
}
int cuptiSubscribe_v2(void**, void*, void*, void*) { return 0; }
int cuptiUnsubscribe(void*) { return 0; }
int cuptiEnableCallback(std::uint32_t, void*, int, std::uint32_t) { return 0; }
int cuptiGetGraphNodeId(void*, std::uint64_t* node) {
  *node = 1;
  return 0;
}
int cuptiActivityRegisterTimestampCallback(void*) { return 0; }
int cuptiActivitySetAttribute(int, std::size_t*, void*) { return 0; }
int cuptiActivityRegisterCallbacks(Request request, Complete complete) {
  g_request = request;
  g_complete = complete;
  return 0;
}
int cuptiActivityEnable(int) { return 0; }
int cuptiActivityDisable(int) { return 0; }
int cuptiActivityEnableRuntimeApi(std::uint32_t, std::uint8_t) { return 0; }
int cuptiActivityEnableDriverApi(std::uint32_t, std::uint8_t) { return 0; }
int cuptiActivityPushExternalCorrelationId(int, std::uint64_t) { return 0; }
int cuptiActivityPopExternalCorrelationId(int, std::uint64_t*) { return 0; }
int cuptiActivityFlushAll(std::uint32_t) {
  hand_over();
  return 0;
}
int cuptiActivityFlushPeriod(std::uint32_t) { return 0; }
int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  *dropped = 0;
  return 0;
}
int cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, void**) { return 1; }
}
