// OwnRows: k and v of a layer as one point of a replay has made them, where its policy merges tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/policy/layer_policy.hpp"
#include "sim/replay/recorded_rows.hpp"

namespace kvroof {

// A copy of the recorded rows for each storage head of the point: as large as k and v of the layer, or a group's number
// of times that where a set is kept for each query head.
class OwnRows {
 public:
  OwnRows(const LayerTensors& recorded, std::uint32_t storage_heads);

  // In place of the recorded ones.
  [[nodiscard]] const LayerTensors& tensors() const { return tensors_; }
  void merge(HeadId head, std::span<const RowMerge> merges);
  // Whether any token, or this one, is no longer as recorded.
  [[nodiscard]] bool changed() const { return changed_; }
  [[nodiscard]] bool merged(HeadId head, TokenPos token) const {
    return merged_[std::size_t{head.value} * rows_.tokens + token.value];
  }
  [[nodiscard]] RowsView keys(HeadId head) const { return view(rows_.k, head, layer_.k_width); }
  [[nodiscard]] RowsView values(HeadId head) const { return view(rows_.v, head, layer_.v_width); }

 private:
  [[nodiscard]] RowsView view(const std::vector<std::byte>& rows, HeadId head, std::size_t width) const {
    return {rows.data() + head.value * width * size_of(tensors_.type), tensors_.type, layer_.kv_heads * width, width,
            rows_.tokens};
  }

  TraceLayer layer_;  // whose KV heads are the storage heads
  LayerKeysValues rows_;
  LayerTensors tensors_;
  bool changed_ = false;
  std::vector<bool> merged_;  // [storage heads, tokens]
};

}  // namespace kvroof
