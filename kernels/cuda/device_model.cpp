#include "kernels/cuda/device_model.hpp"

#include "kernels/cuda/cuda.hpp"
#include "kernels/engine/elements.hpp"
#include "sim/core/bytes_text.hpp"
#include "sim/core/dtype.hpp"

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
    for (const Weight* w : weights) bytes += w->bytes();
  };
  const auto add_linear = [&](const Linear& l) { add({&l.matrix, &l.bias}); };
  const auto add_mlp = [&](const Mlp& mlp) {
    for (const Linear* linear : {&mlp.gate, &mlp.up, &mlp.down}) add_linear(*linear);
  };
  const ModelWeights& w = model.weights;
  add({&w.embedding, &w.head, &w.positions, &w.project_in, &w.project_out});
  for (const LayerWeights& l : w.layers) {
    for (const Linear* linear : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.latent.q_down, &l.latent.kv_down, &l.state.in,
                                 &l.state.rates, &l.state.out}) {
      add_linear(*linear);
    }
    add({&l.latent.q_up, &l.latent.k_up, &l.latent.v_up});
    for (const Mlp* mlp : {&l.mlp, &l.experts.shared}) add_mlp(*mlp);
    for (const Mlp& mlp : l.experts.routed) add_mlp(mlp);
  }
  DeviceFacts facts;
  check_device(find_device(facts), "asking for free memory");
  if (facts.total_bytes == 0 || bytes <= facts.free_bytes) return;
  Error error(fmt::format("{}: the weights take {}, but {} of {} of device memory are free", model.name,
                          bytes_text(bytes), bytes_text(facts.free_bytes), bytes_text(facts.total_bytes)));
  if (bytes <= facts.total_bytes) {
    throw std::move(error).note(fmt::format("no batch fits before {} more are free; nvidia-smi says which processes "
                                            "hold memory",
                                            bytes_text(bytes - facts.free_bytes)));
  }
  throw std::move(error).note("no batch fits this device, whatever the context; `--backend fast` runs the model on the "
                              "CPU");
}

}  // namespace

std::byte* DeviceModel::room(std::size_t bytes) {
  buffers_.emplace_back(bytes);
  return buffers_.back().at();
}

void DeviceModel::place(const Weight& weight, std::byte* to) {
  if (weight.data.size() > 0) {
    copy_to_device(stream_, to, {weight.data.data(), weight.data.size()});
  } else if (weight.stored.empty() && weight.type == DType::kF32) {  // what stays in 32 bits
    Weight made;
    made.type = weight.type;
    made.rows = weight.rows;
    made.cols = weight.cols;
    made.random = weight.random;
    make_elements(made);
    copy_to_device(stream_, to, {made.data.data(), made.data.size()});
    check_device(synchronize(stream_), "copying weights");  // before they go
  } else if (weight.stored.empty()) {
    run_fill(stream_, type_, {weight.random, std::uint64_t{weight.rows} * weight.cols, to});
  } else {
    if (!upload_) upload_.emplace(stream_, ring_);
    upload_->send(weight, to);
  }
  if (progress_) progress_(weight.bytes());
}

const std::byte* DeviceModel::vector(const Weight& weight) {
  if (weight.empty()) return nullptr;
  std::byte* out = room(weight.bytes());
  place(weight, out);
  return out;
}

const float* DeviceModel::floats(const std::vector<float>& values) {
  if (values.empty()) return nullptr;
  const auto bytes = std::as_bytes(std::span(values));
  std::byte* out = room(bytes.size());
  copy_to_device(stream_, out, bytes);
  return reinterpret_cast<const float*>(out);
}

DeviceMatrix DeviceModel::matrix(const Weight& weight) {
  return {vector(weight), static_cast<std::uint32_t>(weight.rows), static_cast<std::uint32_t>(weight.cols)};
}

DeviceLinear DeviceModel::linear(const Linear& linear) {
  if (linear.empty()) return {};
  return {matrix(linear.matrix), vector(linear.bias)};
}

DeviceLinear DeviceModel::stacked(std::span<const Linear* const> parts) {
  DeviceLinear out;
  bool bias = false;
  for (const Linear* part : parts) {
    out.matrix.rows += static_cast<std::uint32_t>(part->matrix.rows);
    out.matrix.cols = static_cast<std::uint32_t>(part->matrix.cols);
    bias = bias || !part->bias.empty();
  }
  std::byte* matrix = room(std::size_t{2} * out.matrix.rows * out.matrix.cols);
  std::byte* joined = bias ? room(std::size_t{2} * out.matrix.rows) : nullptr;
  out.matrix.data = matrix;
  out.bias = joined;
  for (const Linear* part : parts) {
    place(part->matrix, matrix);
    matrix += part->matrix.bytes();
    if (!bias) continue;
    if (part->bias.empty()) {
      const std::vector<std::byte> zeros(2 * part->matrix.rows);
      copy_to_device(stream_, joined, zeros);
      check_device(synchronize(stream_), "copying weights");  // before the zeros go
    } else {
      place(part->bias, joined);
    }
    joined += 2 * part->matrix.rows;
  }
  return out;
}

DeviceExperts DeviceModel::experts(const ExpertWeights& experts) {
  DeviceExperts out;
  if (experts.routed.empty()) return out;
  out.router = linear(experts.router);
  out.router_bias = exact(experts.router_bias);
  if (!experts.shared_gate.empty()) out.shared_gate = matrix(experts.shared_gate);
  out.shared = mlp(experts.shared);
  const auto all = [&](Linear Mlp::*part) {
    std::vector<const Linear*> linears;
    for (const Mlp& mlp : experts.routed) linears.push_back(&(mlp.*part));
    if (linears[0]->empty()) return DeviceLinear{};
    DeviceLinear stack = stacked(linears);
    stack.matrix.rows = static_cast<std::uint32_t>(linears[0]->matrix.rows);
    return stack;
  };
  out.routed = {all(&Mlp::gate), all(&Mlp::up), all(&Mlp::down)};
  return out;
}

DeviceLatent DeviceModel::latent(const LatentWeights& w) {
  const ModelShape& shape = model_.config.shape;
  if (w.kv_down.empty()) return {};
  DeviceLatent out{linear(w.q_down), norm(w.q_norm), matrix(w.q_up), linear(w.kv_down), norm(w.kv_norm),
                   matrix(w.k_up), matrix(w.v_up)};
  out.k_up.rows /= shape.heads;
  out.v_up.rows /= shape.heads;
  return out;
}

DeviceState DeviceModel::state(const StateWeights& w) {
  return {linear(w.in),       linear(w.rates), vector(w.taps), vector(w.taps_bias), exact(w.decay),
          exact(w.rate_bias), exact(w.skip),   norm(w.norm),   linear(w.out)};
}

DeviceModel::DeviceModel(Stream& stream, const Model& model, const ElementProgress& progress, UploadRing ring)
    : stream_(stream), model_(model), progress_(progress), ring_(ring) {
  check_supported(model);
  check_room(model);
  type_ = model.type == DType::kBF16 ? Stored::kBF16 : Stored::kF16;
  const ModelWeights& w = model.weights;
  embedding = matrix(w.embedding);
  head = w.head.empty() ? embedding : matrix(w.head);
  project_in = matrix(w.project_in);
  project_out = matrix(w.project_out);
  positions = vector(w.positions);
  head_bias = vector(w.head_bias);
  embedding_norm = norm(w.embedding_norm);
  final_norm = norm(w.final_norm);
  for (const LayerWeights& l : w.layers) {
    const Linear* const qkv[] = {&l.q, &l.k, &l.v};
    const bool apart = !l.q.empty();
    layers.push_back({norm(l.attention_norm), norm(l.attention_out_norm), norm(l.mlp_norm), norm(l.mlp_out_norm),
                      norm(l.q_norm), norm(l.k_norm), apart ? stacked(qkv) : DeviceLinear{}, latent(l.latent),
                      linear(l.o), mlp(l.mlp), experts(l.experts), exact(l.sinks), linear(l.gate), state(l.state)});
  }
  for (const RotaryRule& rule : model.config.options.rotary) {
    frequencies.push_back(floats(rule.inverse_frequencies));
    long_frequencies.push_back(floats(rule.long_inverse_frequencies));
  }
  // Kernels know biases by distance alone: of Falcon's roundings only that of the slopes is made.
  std::vector<float> slopes = model.config.options.alibi_slopes;
  if (const float scale = model.config.options.alibi_rounded_scale; scale > 0) {
    for (float& slope : slopes) slope = scale * bf16_to_float(float_to_bf16(slope));
  }
  alibi = floats(slopes);
  check_device(synchronize(stream_), "copying weights");
  upload_.reset();
  progress_ = nullptr;
}

}  // namespace kvroof::cuda
