// The weights of a model in the memory of the device, arranged as the fused kernels take them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/weight_upload.hpp"
#include "kernels/engine/model.hpp"

namespace kvroof::cuda {

struct DeviceNorm {
  const std::byte* scale = nullptr;  // null: the family lacks this norm
  const std::byte* bias = nullptr;
};

struct DeviceLinear {
  DeviceMatrix matrix;
  const std::byte* bias = nullptr;
};

struct DeviceMlp {
  DeviceLinear gate, up, down;
};

// The matrices of all routed experts lie behind each other, and so do their biases; rows are those of one.
struct DeviceExperts {
  DeviceLinear router;       // no rows: a dense layer
  const float* router_bias = nullptr;  // [experts] that the choice alone adds, or null
  DeviceMatrix shared_gate;  // one row, or none
  DeviceMlp routed, shared;
};

// As LatentWeights.
struct DeviceLatent {
  DeviceLinear q_down;
  DeviceNorm q_norm;
  DeviceMatrix q_up;
  DeviceLinear kv_down;
  DeviceNorm kv_norm;
  DeviceMatrix k_up, v_up;  // rows are those of one head
};

// As StateWeights.
struct DeviceState {
  DeviceLinear in, rates;
  const std::byte* taps = nullptr;  // null: the layer attends
  const std::byte* taps_bias = nullptr;
  const float *decay = nullptr, *rate_bias = nullptr, *skip = nullptr;
  DeviceNorm norm;
  DeviceLinear out;
};

struct DeviceLayer {
  DeviceNorm attention_norm, attention_out_norm, mlp_norm, mlp_out_norm, q_norm, k_norm;
  DeviceLinear qkv;  // the rows of q, k and v, one after the other; none of latent attention
  DeviceLatent latent;
  DeviceLinear o;
  DeviceMlp mlp;  // of dense layers
  DeviceExperts experts;
  const float* sinks = nullptr;  // [heads], or null
  DeviceLinear gate;  // of attention's output
  DeviceState state;
};

class DeviceModel {
 public:
  // Takes what the host does not have in memory from the model's checkpoint, piece by split, or makes it from its seed:
  // the host's memory does not grow with the model. Throws Error for weights that are not of 16 bits, for what no
  // kernel does, and for a checkpoint that cannot be read any more, in one sentence. `model` must outlive this object.
  DeviceModel(Stream& stream, const Model& model, const ElementProgress& progress = {}, UploadRing ring = {});

  [[nodiscard]] const Model& host() const { return model_; }
  // All of its memory.
  [[nodiscard]] std::span<const DeviceBuffer> buffers() const { return buffers_; }
  [[nodiscard]] Stored type() const { return type_; }
  [[nodiscard]] const DeviceLayer& layer(LayerId attends) const { return layers[model_.config.block_of(attends)]; }

  DeviceMatrix embedding, head;
  DeviceMatrix project_in, project_out;  // between the embedding's width and the layers'; no rows: they are equal
  const std::byte* positions = nullptr;
  const std::byte* head_bias = nullptr;
  DeviceNorm embedding_norm, final_norm;
  std::vector<DeviceLayer> layers;  // of each mixer
  std::vector<const float*> frequencies, long_frequencies;  // of each rotary rule
  const float* alibi = nullptr;

 private:
  std::byte* room(std::size_t bytes);
  // The elements of a weight, from where they are.
  void place(const Weight& weight, std::byte* to);
  const std::byte* vector(const Weight& weight);
  DeviceNorm norm(const Norm& norm) { return {vector(norm.scale), vector(norm.bias)}; }
  DeviceLinear linear(const Linear& linear);
  DeviceLinear stacked(std::span<const Linear* const> parts);
  DeviceMlp mlp(const Mlp& mlp) { return {linear(mlp.gate), linear(mlp.up), linear(mlp.down)}; }
  DeviceExperts experts(const ExpertWeights& experts);
  DeviceLatent latent(const LatentWeights& latent);
  DeviceState state(const StateWeights& state);
  DeviceMatrix matrix(const Weight& weight);
  const float* floats(const std::vector<float>& values);
  const float* exact(const Weight& weight) { return reinterpret_cast<const float*>(vector(weight)); }

  Stream& stream_;
  const Model& model_;
  Stored type_ = Stored::kBF16;
  std::vector<DeviceBuffer> buffers_;
  ElementProgress progress_;  // while the model is made
  UploadRing ring_;
  std::optional<WeightUpload> upload_;  // while elements come from a checkpoint
};

}  // namespace kvroof::cuda
