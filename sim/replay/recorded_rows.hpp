// RecordedRows: the rows of k, v and q that a trace has of one layer of one sequence, for policies that score by them.
#pragma once

#include <span>

#include "sim/policy/layer_policy.hpp"
#include "traces/manifest.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// Of the layer that is being replayed; serves points of either storage unit.
struct LayerTensors {
  const TraceLayer* layer = nullptr;
  DType type = DType::kF32;
  const LayerKeysValues* keys_values = nullptr;
  std::span<const std::byte> queries;  // [rows, query_heads, k_width]: the last rows of the prompt
};

// The view of one point, whose storage heads are the KV heads or the query heads.
class RecordedRows final : public HeadRowsSource {
 public:
  RecordedRows(const LayerTensors& tensors, std::uint32_t storage_heads)
      : tensors_(tensors), storage_heads_(storage_heads) {}

  [[nodiscard]] HeadRows rows(HeadId head) const override {
    const TraceLayer& layer = *tensors_.layer;
    const LayerKeysValues& kv = *tensors_.keys_values;
    const std::uint32_t kv_head = head.value / (storage_heads_ / layer.kv_heads);
    const auto of_head = [&](std::span<const std::byte> data, std::size_t heads, std::size_t at, std::size_t width,
                             std::size_t count) {
      return RowsView{data.data() + at * width * size_of(tensors_.type), tensors_.type, heads * width, width, count};
    };
    const std::size_t group = layer.query_heads / storage_heads_;
    const std::size_t q_width = group * layer.k_width;
    const std::size_t q_rows =
        tensors_.queries.size() / (std::size_t{layer.query_heads} * layer.k_width * size_of(tensors_.type));
    return {of_head(kv.k, layer.kv_heads, kv_head, layer.k_width, kv.tokens),
            of_head(kv.v, layer.kv_heads, kv_head, layer.v_width, kv.tokens), true,
            of_head(tensors_.queries, storage_heads_, head.value, q_width, q_rows)};
  }

 private:
  const LayerTensors& tensors_;
  std::uint32_t storage_heads_;
};

}  // namespace kvroof
