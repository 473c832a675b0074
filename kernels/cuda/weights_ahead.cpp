#include "kernels/cuda/weights_ahead.hpp"

#include <algorithm>

namespace kvroof::cuda {
namespace {

const DeviceMatrix& first_of(const DeviceMlp& mlp) {
  return mlp.gate.matrix.rows > 0 ? mlp.gate.matrix : mlp.up.matrix;
}

// The matrices of a pass in the order in which they are read; null, or one without rows, stands for those that only the
// pass will choose or that few models have.
std::vector<const DeviceMatrix*> in_order(const DeviceModel& model) {
  std::vector<const DeviceMatrix*> order;
  const bool parallel = model.host().config.options.residual == ResidualOrder::kParallel;
  for (const DeviceLayer& layer : model.layers) {
    order.push_back(&layer.qkv.matrix);
    if (parallel) {
      order.insert(order.end(), {&first_of(layer.mlp), &layer.o.matrix, &layer.mlp.down.matrix});
    } else if (layer.experts.router.rows > 0) {
      order.insert(order.end(), {&layer.o.matrix, &layer.experts.router, nullptr});
    } else {
      order.insert(order.end(), {&layer.o.matrix, &first_of(layer.mlp), &layer.mlp.down.matrix});
    }
  }
  if (model.project_out.rows > 0) order.push_back(&model.project_out);
  order.push_back(&model.head);
  return order;
}

}  // namespace

WeightsAhead::WeightsAhead(const DeviceModel& model, std::size_t most_bytes) {
  const std::vector<const DeviceMatrix*> order = in_order(model);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    if (order[i] == nullptr || order[i + 1] == nullptr || order[i]->rows == 0) continue;
    const DeviceMatrix& next = *order[i + 1];
    const std::size_t bytes = std::min(std::size_t{2} * next.rows * next.cols, most_bytes);
    next_[order[i]->data] = {next.data, static_cast<std::uint32_t>(bytes)};
  }
}

Ahead WeightsAhead::after(const DeviceMatrix& matrix) const {
  const auto next = next_.find(matrix.data);
  return next == next_.end() ? Ahead{} : next->second;
}

}  // namespace kvroof::cuda
