#include "kernels/cuda/sent_back.hpp"

namespace kvroof::cuda {

void SentBack::send(Stream& stream, const std::byte* from, std::size_t bytes) {
  check_device(stream.problem, "launching kernels");
  from_ = from;
  if (bytes == 0 || !memory_.reserve(bytes)) return;
  check_device(copy_out_later(stream, memory_.data(), from, bytes), "copying from the device");
}

void SentBack::read(Stream& stream, std::span<std::byte> out) {
  if (out.empty()) return;
  // A host that refuses pinned memory has them copied while it waits.
  if (memory_.data() == nullptr) return copy_to_host(stream, out, from_);
  check_device(synchronize(stream), "copying from the device");
  copy_.copy(out.data(), static_cast<const std::byte*>(memory_.data()), out.size());
}

}  // namespace kvroof::cuda
