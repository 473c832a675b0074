// The weights of a model in the memory of the device, arranged as the fused kernels take them.
#pragma once

#include <vector>

#include "kernels/cuda/device_buffer.hpp"
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

struct DeviceLayer {
  DeviceNorm attention_norm, attention_out_norm, mlp_norm, mlp_out_norm, q_norm, k_norm;
  DeviceLinear qkv;  // the rows of q, k and v, one after the other
  DeviceLinear o, gate, up, down;
};

class DeviceModel {
 public:
  // Throws Error for weights that are not of 16 bits, and for what no kernel does yet (experts, latent attention), in
  // one sentence. `model` must outlive this object.
  DeviceModel(Stream& stream, const Model& model);

  [[nodiscard]] const Model& host() const { return model_; }
  [[nodiscard]] Stored type() const { return type_; }

  DeviceMatrix embedding, head;
  const std::byte* positions = nullptr;
  const std::byte* head_bias = nullptr;
  DeviceNorm embedding_norm, final_norm;
  std::vector<DeviceLayer> layers;
  std::vector<const float*> frequencies, long_frequencies;  // of each rotary rule
  const float* alibi = nullptr;

 private:
  std::byte* room(std::size_t bytes);
  // The elements of a weight, from memory or made on the device.
  void place(const Weight& weight, std::byte* to);
  const std::byte* vector(const Weight& weight);
  DeviceNorm norm(const Norm& norm) { return {vector(norm.scale), vector(norm.bias)}; }
  DeviceLinear linear(const Linear& linear);
  DeviceLinear stacked(std::initializer_list<const Linear*> parts);
  DeviceMatrix matrix(const Weight& weight);
  const float* floats(const std::vector<float>& values);

  Stream& stream_;
  const Model& model_;
  Stored type_ = Stored::kBF16;
  std::vector<DeviceBuffer> buffers_;
};

}  // namespace kvroof::cuda
