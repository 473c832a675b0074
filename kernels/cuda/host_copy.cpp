#include "kernels/cuda/host_copy.hpp"

#include <algorithm>
#include <cstring>

namespace kvroof::cuda {
namespace {

constexpr unsigned kMostThreads = 8;  // what more of them move, memory does not give

}  // namespace

void HostCopy::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kShared) {
    std::memcpy(to, from, bytes);
    return;
  }
  if (!pool_) pool_.emplace(std::min(kMostThreads, default_threads()));
  pool_->parallel_for((bytes + kPiece - 1) / kPiece, [&](std::size_t piece) {
    const std::size_t at = piece * kPiece;
    std::memcpy(to + at, from + at, std::min(kPiece, bytes - at));
  });
}

}  // namespace kvroof::cuda
