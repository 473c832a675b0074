#include "kernels/cuda/device_model.hpp"

#include "sim/core/error.hpp"

namespace kvroof::cuda {
namespace {

void refuse(const Model& model, std::string_view what) {
  throw Error(fmt::format("{}: the CUDA back end does not run {}", model.name, what))
      .note("`--backend fast` runs it on the CPU");
}

void check_supported(const Model& model) {
  const ModelShape& shape = model.config.shape;
  if (model.type == DType::kF32) refuse(model, "weights of 32 bits; `--dtype bf16` or `--dtype f16` converts them");
  if (shape.latent()) refuse(model, "multi-head latent attention");
  if (shape.experts > 0) refuse(model, "mixtures of experts");
  if (!model.weights.project_in.empty()) refuse(model, "projections between embedding and residual stream");
  for (const std::uint32_t size : {shape.head_dim, shape.v_head_dim}) {
    if (size % 8 != 0 || size > 256) refuse(model, fmt::format("heads of {} elements", size));
  }
  for (const std::uint32_t size : {shape.hidden, shape.ffn}) {
    if (size % 8 != 0) refuse(model, fmt::format("rows of {} elements, which is no multiple of 8", size));
  }
}

}  // namespace

const std::byte* DeviceModel::upload(std::span<const std::byte> bytes) {
  buffers_.emplace_back(bytes.size());
  copy_to_device(stream_, buffers_.back().at(), bytes);
  return buffers_.back().at();
}

const float* DeviceModel::floats(const std::vector<float>& values) {
  return values.empty() ? nullptr : reinterpret_cast<const float*>(upload(std::as_bytes(std::span(values))));
}

DeviceMatrix DeviceModel::matrix(const Weight& weight) {
  return {upload(bytes_of(weight)), static_cast<std::uint32_t>(weight.rows), static_cast<std::uint32_t>(weight.cols)};
}

DeviceLinear DeviceModel::linear(const Linear& linear) {
  if (linear.empty()) return {};
  return {matrix(linear.matrix), vector(linear.bias)};
}

DeviceLinear DeviceModel::stacked(std::initializer_list<const Linear*> parts) {
  DeviceLinear out;
  std::size_t bytes = 0;
  bool bias = false;
  for (const Linear* part : parts) {
    bytes += part->matrix.data.size();
    out.matrix.rows += static_cast<std::uint32_t>(part->matrix.rows);
    out.matrix.cols = static_cast<std::uint32_t>(part->matrix.cols);
    bias = bias || !part->bias.empty();
  }
  buffers_.emplace_back(bytes);
  out.matrix.data = buffers_.back().at();
  std::size_t at = 0;
  for (const Linear* part : parts) {
    copy_to_device(stream_, buffers_.back().at(at), bytes_of(part->matrix));
    at += part->matrix.data.size();
  }
  if (!bias) return out;
  std::vector<std::byte> joined;  // a part without a bias has zeros
  for (const Linear* part : parts) {
    const auto own = bytes_of(part->bias);
    joined.insert(joined.end(), own.begin(), own.end());
    joined.resize(joined.size() + part->matrix.rows * 2 - own.size());
  }
  out.bias = upload(joined);
  return out;
}

DeviceModel::DeviceModel(Stream& stream, const Model& model) : stream_(stream), model_(model) {
  check_supported(model);
  type_ = model.type == DType::kBF16 ? Stored::kBF16 : Stored::kF16;
  const ModelWeights& w = model.weights;
  embedding = matrix(w.embedding);
  head = w.head.empty() ? embedding : matrix(w.head);
  positions = vector(w.positions);
  head_bias = vector(w.head_bias);
  embedding_norm = norm(w.embedding_norm);
  final_norm = norm(w.final_norm);
  for (const LayerWeights& l : w.layers) {
    layers.push_back({norm(l.attention_norm), norm(l.attention_out_norm), norm(l.mlp_norm), norm(l.mlp_out_norm),
                      norm(l.q_norm), norm(l.k_norm), stacked({&l.q, &l.k, &l.v}), linear(l.o), linear(l.mlp.gate),
                      linear(l.mlp.up), linear(l.mlp.down)});
  }
  for (const RotaryRule& rule : model.config.options.rotary) {
    frequencies.push_back(floats(rule.inverse_frequencies));
    long_frequencies.push_back(floats(rule.long_inverse_frequencies));
  }
  alibi = floats(model.config.options.alibi_slopes);
  check_device(synchronize(stream_), "copying weights");
}

}  // namespace kvroof::cuda
