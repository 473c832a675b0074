// Fuzz target: any bytes as an SQLite export of Nsight Systems.
#include "tests/support/checking_sink.hpp"
#include "traces/import_profile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvroof::test::read_as_profile(data, size, kvroof::read_nsys);
  return 0;
}
