// A libcuda.so.1 without a GPU: a context that is current, and no device that could be asked for anything.
#include <dlfcn.h>

#include <cstring>

extern "C" {

int cuInit(unsigned) { return 100; }  // CUDA_ERROR_NO_DEVICE
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuCtxGetCurrent(void** context) {
  static int made = 0;
  *context = &made;
  return 0;
}
// That of the made NVML's device.
int cuDeviceGetPCIBusId(char* text, int, int device) {
  std::strcpy(text, "0000:07:00.0");
  return device == 0 ? 0 : 101;  // CUDA_ERROR_INVALID_DEVICE
}
// The made CUPTI is told, and says what is answered.
int cuCtxSynchronize() {
  void* const cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
  if (cupti == nullptr) return 0;
  auto* const told = reinterpret_cast<int (*)()>(dlsym(cupti, "made_synchronized"));
  dlclose(cupti);  // whoever loaded it keeps it
  return told == nullptr ? 0 : told();
}
}
