#include "kernels/cuda/measure/cold_memory.hpp"

namespace kvroof::cuda {

DeviceBuffer noise(Stream& stream, Noise kind, float scale, std::size_t bytes) {
  DeviceBuffer buffer(bytes);
  run_noise(stream, kind, scale, 1, buffer.at(), bytes / 16 * 16);
  check_device(synchronize(stream), "filling memory");
  return buffer;
}

std::size_t pieces_of(std::size_t bytes, const CardFacts& card) { return 4 * card.l2_bytes / bytes + 1; }

}  // namespace kvroof::cuda
