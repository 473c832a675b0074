// A libcuda.so.1 without a GPU: a context that is current, and no device that could be asked for anything.
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
}
