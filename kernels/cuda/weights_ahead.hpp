// What weights a pass reads after which: they set out for the second-level cache while the launches before them end.
#pragma once

#include <unordered_map>

#include "kernels/cuda/device_model.hpp"

namespace kvroof::cuda {

// Of the second-level cache, what is fetched ahead may take one of so many shares: more would push out what it is
// fetched beside.
constexpr std::size_t kAheadShare = 4;

class WeightsAhead {
 public:
  // At most `most_bytes` are fetched ahead. `model` must outlive this object.
  WeightsAhead(const DeviceModel& model, std::size_t most_bytes);

  // The first bytes of the matrix that a pass takes after this one; none where that is not known beforehand, as that of
  // an expert.
  [[nodiscard]] Ahead after(const DeviceMatrix& matrix) const;

 private:
  std::unordered_map<const std::byte*, Ahead> next_;  // by where a matrix lies
};

}  // namespace kvroof::cuda
