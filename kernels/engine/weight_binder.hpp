// WeightBinder: the ways in which checkpoints store the tensors of a layer, for the files of the families.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "kernels/engine/weight_families.hpp"

namespace kvroof {

// Stored rows, some after the other, that become rows [to, to + count) of a weight.
struct RowRun {
  std::size_t to = 0, count = 0;
};

class WeightBinder {
 public:
  // name, a whole matrix [rows, cols].
  void matrix(const std::string& name, Weight& weight, std::size_t rows, std::size_t cols);
  // name, a vector [size].
  void vector(const std::string& name, Weight& weight, std::size_t size);
  // The same, in f32 whatever the model's type is.
  void exact_vector(const std::string& name, Weight& weight, std::size_t size);
  // The same, stored as a matrix [1, size].
  void exact_row(const std::string& name, Weight& weight, std::size_t size);
  // name.weight, and name.bias where there is one.
  void linear(const std::string& name, Linear& linear, std::size_t out, std::size_t in, bool bias);
  // The same, stored [in, out] as GPT-2's Conv1D does.
  void conv1d(const std::string& name, Linear& linear, std::size_t out, std::size_t in, bool bias);
  // name.weight, and name.bias where there is one.
  void norm(const std::string& name, Norm& norm, std::size_t size, bool bias);

  // name [Σ counts, cols] becomes rows of a matrix [rows, cols]; name [Σ counts] elements of a vector [size].
  void matrix_runs(const std::string& name, Weight& weight, std::size_t rows, std::size_t cols,
                   std::span<const RowRun> runs);
  void vector_runs(const std::string& name, Weight& weight, std::size_t size, std::span<const RowRun> runs);
  // name, the weights of a convolution of each channel by itself: [channels, 1, width] becomes [channels, width].
  void taps(const std::string& name, Weight& weight, std::size_t width, std::span<const RowRun> runs);
  void taps(const std::string& name, Weight& weight, std::size_t channels, std::size_t width) {
    const RowRun all{0, channels};
    taps(name, weight, width, {&all, 1});
  }

  // One part of a fused projection: `rows` rows of every repetition go to `linear`.
  struct Part {
    Linear* linear = nullptr;
    std::size_t rows = 0;
  };
  // name.weight [repetitions · Σ rows, in] and name.bias: the parts follow each other, `repetitions` times. One
  // repetition: thirds (MPT, GPT-2); one a head: BLOOM, GPT-NeoX; one a group: Falcon.
  void fused(const std::string& name, std::initializer_list<Part> parts, std::size_t repetitions, std::size_t in,
             bool bias, bool transposed = false);

  // q, k and v fused: `groups` times, the rows of its q heads, k heads and v heads. One group: all of q, then k, then
  // v.
  void fused_qkv(const std::string& name, const ModelShape& shape, LayerWeights& layer, std::uint32_t groups,
                 bool transposed = false);
  // A layer's matrices as Megatron-LM names them: QKV fused by KV head and the output in `attention`, the MLP in `mlp`.
  void megatron_layer(const std::string& attention, const std::string& mlp, const ModelShape& shape,
                      LayerWeights& layer);

  // For what none of the above says.
  void add(TensorBinding binding) { bindings_.push_back(std::move(binding)); }
  std::vector<TensorBinding> take() { return std::move(bindings_); }

 private:
  std::vector<TensorBinding> bindings_;
};

}  // namespace kvroof
