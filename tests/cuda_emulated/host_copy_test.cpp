#include "kernels/cuda/host_copy.hpp"

#include <vector>

#include "tests/catch.hpp"

using kvroof::cuda::HostCopy;

TEST_CASE("a copy by one thread or by several takes every byte, and none beyond") {
  HostCopy host;
  for (const std::size_t bytes :
       {std::size_t{1}, HostCopy::kPiece, HostCopy::kShared - 1, HostCopy::kShared, HostCopy::kShared + 1,
        9 * HostCopy::kPiece - 3, 40 * HostCopy::kPiece}) {
    std::vector<std::byte> from(bytes), to(bytes + 1, std::byte{0xee});
    for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 2654435761U >> 13);
    host.copy(to.data(), from.data(), bytes);
    CHECK(to.back() == std::byte{0xee});
    to.pop_back();
    CHECK((to == from));  // megabytes are not printed
  }
}
