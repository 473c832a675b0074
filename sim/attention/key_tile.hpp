// KeyTile: some keys of a head by channel, so that the logits of many queries over them need no sums across a vector.
#pragma once

#include <cstddef>
#include <span>

#include "sim/attention/attention.hpp"
#include "sim/core/aligned_vector.hpp"

namespace kvroof {

class KeyTile {
 public:
  static constexpr std::size_t kKeys = 64;

  // 1 to kKeys rows, converted to float.
  void load(const RowsView& keys);
  [[nodiscard]] std::size_t width() const { return width_; }
  [[nodiscard]] const float* channels() const { return channels_.data(); }  // [width][kKeys]

 private:
  std::size_t width_ = 0;
  AlignedVector<float> channels_;
};
// out[i · KeyTile::kKeys + r] is the logit of queries[i], [width], and key r: the same, to the bit, as compute_logits()
// of that query makes it of the rows. Of keys that the tile does not have it is any number.
void compute_logits(std::span<const float* const> queries, const KeyTile& keys, const LogitRule& rule,
                    std::span<float> out);

}  // namespace kvroof
