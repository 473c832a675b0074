#include "kernels/cuda/device_model.hpp"

#include "kernels/cuda/cuda.hpp"
#include "sim/core/bytes_text.hpp"

namespace kvroof::cuda {
namespace {

void check_supported(const Model& model) {
  if (const auto what = cuda_model_problem(model.config, model.type, model.type)) {
    throw usage_error(fmt::format("{}: the CUDA back end does not run {}", model.name, *what))
        .note("`--backend fast` runs it on the CPU");
  }
}

// What one large allocation after the other would find out late, and without a word for it.
void check_room(const Model& model) {
  std::uint64_t bytes = 0;
  const auto add = [&](std::initializer_list<const Weight*> weights) {
    for (const Weight* w : weights) bytes += w->data.size();
  };
  const auto add_linear = [&](const Linear& l) { add({&l.matrix, &l.bias}); };
  const ModelWeights& w = model.weights;
  add({&w.embedding, &w.head, &w.positions});
  for (const LayerWeights& l : w.layers) {
    for (const Linear* linear : {&l.q, &l.k, &l.v, &l.o, &l.mlp.gate, &l.mlp.up, &l.mlp.down}) add_linear(*linear);
  }
  DeviceFacts facts;
  check_device(find_device(facts), "asking for free memory");
  if (facts.total_bytes == 0 || bytes <= facts.free_bytes) return;
  Error error(fmt::format("{}: the weights take {}, but {} of {} of device memory are free", model.name,
                          bytes_text(bytes), bytes_text(facts.free_bytes), bytes_text(facts.total_bytes)));
  if (bytes <= facts.total_bytes) throw std::move(error).note("nvidia-smi says which processes hold the rest");
  throw std::move(error).note("`--backend fast` runs the model on the CPU");
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
  check_room(model);
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
