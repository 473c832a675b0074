// Scratch: aligned floats that a thread keeps from call to call.
#pragma once

#include <cstddef>

#include "kernels/engine/weight.hpp"

namespace kvroof {

class Scratch {
 public:
  // At least `count` floats, aligned to 64 bytes; what they held before is lost.
  float* floats(std::size_t count) {
    if (bytes_.size() < count * sizeof(float)) bytes_ = AlignedBytes(count * sizeof(float));
    return reinterpret_cast<float*>(bytes_.data());
  }

 private:
  AlignedBytes bytes_;
};

}  // namespace kvroof
