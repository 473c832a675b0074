// A libnvidia-ml.so.1 without a GPU: one device, which draws a watt more each time that it is asked.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int g_begun = 0;
int g_device = 0;
unsigned g_power_mw = 99'000;

// What a test wishes every question to be answered with (MADE_CUPTI="nvml=9").
int wished() {
  const char* const text = std::getenv("MADE_CUPTI");
  const char* const at = text == nullptr ? nullptr : std::strstr(text, "nvml=");
  return at == nullptr ? 0 : std::atoi(at + 5);
}

bool asked_well(void* device) {
  if (g_begun > 0 && device == &g_device) return true;
  std::fputs("made CUPTI: NVML is asked before its start, or of a device that it does not know\n", stderr);
  return false;
}

}  // namespace

extern "C" {

int made_nvml_begun() { return g_begun; }

int nvmlInit_v2() {
  if (const int answer = wished()) return answer;
  ++g_begun;
  return 0;
}
int nvmlShutdown() {
  --g_begun;
  return 0;
}
const char* nvmlErrorString(int) { return "made"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  *device = &g_device;
  return std::strcmp(bus, "0000:07:00.0") == 0 ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1980 : 3201;
  return asked_well(device) && (type == 1 || type == 2) ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* mw) {
  *mw = g_power_mw += 1000;
  return asked_well(device) ? 0 : 2;
}
// Of this device nobody knows it.
int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) {
  *celsius = 77;
  return asked_well(device) ? 3 : 2;  // NVML_ERROR_NOT_SUPPORTED
}
}
