#include "kernels/cuda/device_buffer.hpp"

#include "sim/core/bytes_text.hpp"

namespace kvroof::cuda {

void check_device(const char* problem, const char* doing) {
  if (problem != nullptr) throw Error(fmt::format("CUDA: {} while {}", problem, doing));
}

void throw_refused_graph(const char* problem) {
  throw Error(fmt::format("CUDA: {} while capturing launches", problem))
      .note("KVROOF_NO_GRAPHS=1 in the environment has them launched one by one");
}

OutOfDeviceMemory::OutOfDeviceMemory(std::uint64_t asked_for, std::uint64_t is_free, std::uint64_t in_all,
                                     const char* answer)
    : Error(fmt::format("CUDA: {} of device memory were asked for, {} of {} are free: {}", bytes_text(asked_for),
                        bytes_text(is_free), bytes_text(in_all), answer)),
      asked(asked_for),
      free(is_free),
      total(in_all) {}

DeviceBuffer::DeviceBuffer(std::size_t bytes) {
  if (bytes == 0) return;
  const char* problem = allocate(bytes, &data_);
  bytes_ = bytes;
  if (problem == nullptr) return;
  data_ = nullptr;
  // A device that has failed refuses memory as well, and says why whatever it is asked.
  DeviceFacts facts;
  check_device(find_device(facts), "asking for device memory");
  if (std::string_view(problem) != kNoMemory) check_device(problem, "asking for device memory");
  throw OutOfDeviceMemory(bytes, facts.free_bytes, facts.total_bytes, problem);
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
