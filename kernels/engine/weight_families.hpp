// Where each family's checkpoint keeps its tensors; weight_families.cpp holds the table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engine/model.hpp"

namespace kvroof {

// A tensor that the checkpoint must hold, and the weight it becomes. A vector has one row and is stored as [cols].
struct TensorBinding {
  std::string name;
  Weight* weight = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  bool is_vector = false;
};

// One entry a family: a new family is one file and one line.
struct WeightFamily {
  std::string_view model_type;
  // Every tensor of a checkpoint of this shape; weights.layers has been sized.
  std::vector<TensorBinding> (*bind)(const ModelShape& shape, ModelWeights& weights);
  // Stored tensors that are no weights, and copies of tied weights: to be skipped.
  bool (*skipped)(const ModelShape& shape, std::string_view tensor);
};

// Throws std::logic_error for a family without an entry: the tables of config.json and weights go together.
const WeightFamily& weight_family(std::string_view model_type);

std::vector<TensorBinding> bind_llama(const ModelShape& shape, ModelWeights& weights);
bool skipped_llama(const ModelShape& shape, std::string_view tensor);

}  // namespace kvroof
