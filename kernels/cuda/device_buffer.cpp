#include "kernels/cuda/device_buffer.hpp"

#include "sim/core/error.hpp"

namespace kvroof::cuda {

void check_device(const char* problem, const char* doing) {
  if (problem != nullptr) throw Error(fmt::format("CUDA: {} while {}", problem, doing));
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const char* problem = allocate(bytes, &data_);
  if (problem == nullptr) return;
  data_ = nullptr;
  DeviceFacts facts;
  const bool known = find_device(facts) == nullptr;
  throw Error(fmt::format("CUDA: {} bytes of device memory were asked for, {} are free: {}", bytes,
                          known ? facts.free_bytes : 0, problem))
      .note("a smaller batch, a shorter context or a policy with a smaller budget needs less");
}

void copy_to_device(Stream& stream, std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) check_device(copy_in(stream, to, from.data(), from.size()), "copying to the device");
}

void copy_to_host(Stream& stream, std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return;
  check_device(stream.problem, "launching kernels");
  check_device(copy_out(stream, to.data(), from, to.size()), "copying from the device");
}

}  // namespace kvroof::cuda
