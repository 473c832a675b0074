#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

void WeightBinder::matrix(const std::string& name, Weight& weight, std::size_t rows, std::size_t cols) {
  add({name, {rows, cols}, {{&weight, rows, cols, 0, 0, rows}}});
}

void WeightBinder::vector(const std::string& name, Weight& weight, std::size_t size) {
  add({name, {size}, {{&weight, 1, size, 0, 0, size}}});
}

void WeightBinder::exact_vector(const std::string& name, Weight& weight, std::size_t size) {
  vector(name, weight, size);
  bindings_.back().exact = true;
}

void WeightBinder::exact_row(const std::string& name, Weight& weight, std::size_t size) {
  matrix(name, weight, 1, size);
  bindings_.back().exact = true;
}

void WeightBinder::linear(const std::string& name, Linear& linear, std::size_t out, std::size_t in, bool bias) {
  fused(name, {{&linear, out}}, 1, in, bias);
}

void WeightBinder::conv1d(const std::string& name, Linear& linear, std::size_t out, std::size_t in, bool bias) {
  fused(name, {{&linear, out}}, 1, in, bias, true);
}

void WeightBinder::norm(const std::string& name, Norm& norm, std::size_t size, bool bias) {
  vector(name + ".weight", norm.scale, size);
  if (bias) vector(name + ".bias", norm.bias, size);
}

void WeightBinder::matrix_runs(const std::string& name, Weight& weight, std::size_t rows, std::size_t cols,
                               std::span<const RowRun> runs) {
  TensorBinding binding{name, {0, cols}, {}};
  for (const RowRun& run : runs) {
    binding.blocks.push_back({&weight, rows, cols, binding.shape[0], run.to, run.count});
    binding.shape[0] += run.count;
  }
  add(std::move(binding));
}

void WeightBinder::vector_runs(const std::string& name, Weight& weight, std::size_t size,
                               std::span<const RowRun> runs) {
  matrix_runs(name, weight, 1, size, runs);
  bindings_.back().shape.resize(1);
}

void WeightBinder::taps(const std::string& name, Weight& weight, std::size_t width, std::span<const RowRun> runs) {
  std::size_t channels = 0;
  for (const RowRun& run : runs) channels += run.count;
  matrix_runs(name, weight, channels, width, runs);
  bindings_.back().shape = {channels, 1, width};
  bindings_.back().width = width;
}

void WeightBinder::fused(const std::string& name, std::initializer_list<Part> parts, std::size_t repetitions,
                         std::size_t in, bool bias, bool transposed) {
  std::size_t out = 0;
  for (const Part& part : parts) out += repetitions * part.rows;
  TensorBinding matrix{name + ".weight", {out, in}, {}, transposed};
  if (transposed) matrix.shape = {in, out};
  TensorBinding vector{name + ".bias", {out}, {}};
  std::size_t from = 0;
  for (std::size_t r = 0; r < repetitions; ++r) {
    for (const Part& part : parts) {
      const std::size_t rows = repetitions * part.rows;
      const std::size_t to = r * part.rows;
      matrix.blocks.push_back({&part.linear->matrix, rows, in, from, to, part.rows});
      vector.blocks.push_back({&part.linear->bias, 1, rows, from, to, part.rows});
      from += part.rows;
    }
  }
  add(std::move(matrix));
  if (bias) add(std::move(vector));
}

void WeightBinder::fused_qkv(const std::string& name, const ModelShape& shape, LayerWeights& layer,
                             std::uint32_t groups, bool transposed) {
  const std::size_t q_rows = std::size_t{shape.heads} * shape.head_dim / groups;
  const std::size_t k_rows = std::size_t{shape.kv_heads} * shape.head_dim / groups;
  const std::size_t v_rows = std::size_t{shape.kv_heads} * shape.v_head_dim / groups;
  fused(name, {{&layer.q, q_rows}, {&layer.k, k_rows}, {&layer.v, v_rows}}, groups, shape.hidden, shape.qkv_bias,
        transposed);
}

void WeightBinder::megatron_layer(const std::string& attention, const std::string& mlp, const ModelShape& shape,
                                  LayerWeights& layer) {
  fused_qkv(attention + ".query_key_value", shape, layer, shape.kv_heads);
  linear(attention + ".dense", layer.o, shape.hidden, std::size_t{shape.heads} * shape.v_head_dim, shape.out_bias);
  linear(mlp + ".dense_h_to_4h", layer.mlp.up, shape.ffn, shape.hidden, shape.mlp_bias);
  linear(mlp + ".dense_4h_to_h", layer.mlp.down, shape.hidden, shape.ffn, shape.mlp_bias);
}

}  // namespace kvroof
