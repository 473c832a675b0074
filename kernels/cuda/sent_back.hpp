// What the host is given of the device while it goes on: copies set out with send(), and are waited for by read().
#pragma once

#include <span>

#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/host_copy.hpp"
#include "kernels/cuda/pinned.hpp"

namespace kvroof::cuda {

class SentBack {
 public:
  // `bytes` from `from` on, which what was launched before makes. Throws Error where a launch was refused.
  void send(Stream& stream, const std::byte* from, std::size_t bytes);
  // As many as were sent.
  void read(Stream& stream, std::span<std::byte> out);

 private:
  const std::byte* from_ = nullptr;
  PinnedBuffer memory_;
  HostCopy copy_;
};

}  // namespace kvroof::cuda
