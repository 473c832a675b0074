// ResidencyLog: the residency of one sequence, written step by step and layer by layer in a few bytes a layer.
//
// In the steady state a step's counts equal those of the step before, or grow by the same amount, so that each layer is
// stored as runs of equal increments. Nothing is lost: expand() gives back every cell to the bit.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/core/residency.hpp"

namespace kvroof {

class ResidencyLog {
 public:
  // `head` carries everything but the cells.
  explicit ResidencyLog(Residency head = {});

  // The counts of the layer's next step, from step 0 on; layers may be written one after the other.
  void append(std::uint32_t layer, const LayerCounts& counts);

  // All layers, or one layer alone. Every step of them must have been appended.
  [[nodiscard]] Residency expand() const;
  [[nodiscard]] Residency expand_layer(std::uint32_t layer) const;
  [[nodiscard]] const Residency& head() const { return head_; }
  [[nodiscard]] std::uint64_t bytes() const;  // of memory that the runs take

 private:
  struct Run {
    LayerCounts first;
    LayerCounts increment;  // wraps where counts shrink
    std::uint32_t length = 1;
  };
  void expand_into(Residency& to, std::uint32_t target, std::uint32_t layer) const;

  Residency head_;
  std::vector<std::vector<Run>> layers_;
};

}  // namespace kvroof
