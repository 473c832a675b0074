// Fuzz target: any bytes as a trace of PyTorch's profiler.
#include "tests/support/checking_sink.hpp"
#include "traces/import_profile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvroof::test::read_as_profile(data, size, kvroof::read_kineto);
  return 0;
}
