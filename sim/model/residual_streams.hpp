// Residual streams that attention and MLPs read a mean of and add to each of (hyper-connections; arXiv:2512.24880).
#pragma once

#include <cstdint>

namespace kvroof {

// Parameters of one mixer or MLP, in 32 bits: a product of all `streams` of size `hidden` that makes a weight of each
// on the way in, one on the way out, and a matrix that mixes them, with a bias each and three scales. 0 of fewer than
// two.
constexpr std::uint64_t stream_parameters(std::uint64_t streams, std::uint64_t hidden) {
  const std::uint64_t weights = (2 + streams) * streams;
  return streams < 2 ? 0 : weights * (streams * hidden + 1) + 3;
}
// Of what makes one of them at the end.
constexpr std::uint64_t last_stream_parameters(std::uint64_t streams, std::uint64_t hidden) {
  return streams < 2 ? 0 : streams * (streams * hidden + 1) + 1;
}

}  // namespace kvroof
