#include <bit>
#include <cstdio>
#include <vector>

#include "sim/core/gumbel.hpp"
#include "tests/catch.hpp"
#if KVROOF_HAVE_CUDA
#include "kernels/cuda/noise.hpp"
#endif

using namespace kvroof;

namespace {

bool device_available() {
#if KVROOF_HAVE_CUDA
  if (cuda_device_available()) return true;
#endif
  std::puts("SKIPPED: no CUDA device");
  return false;
}

#if KVROOF_HAVE_CUDA
std::vector<NoiseKey> keys_of_every_kind() {
  std::vector<NoiseKey> keys;
  for (std::uint32_t position = 0; position < 100000; ++position) {
    keys.push_back(
        {position % 3, position % 5, position % 7, position % 11, position, position % 2 ? 0xffffffffU : 17});
  }
  for (const std::uint32_t edge : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    keys.push_back({0xffffffffffffffffULL, edge, edge, edge, edge, edge});
  }
  return keys;
}
#endif

}  // namespace

TEST_CASE("Gumbel noise has the same bits on the GPU and on the host, for every kind of key") {
  if (!device_available()) return;
#if KVROOF_HAVE_CUDA
  const std::vector<NoiseKey> keys = keys_of_every_kind();
  std::vector<float> noise(keys.size());
  gumbel_noise_on_device(keys, noise);
  std::size_t different = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(noise[i]) != std::bit_cast<std::uint32_t>(gumbel_draw(keys[i]))) ++different;
  }
  CHECK(different == 0);
#endif
}
