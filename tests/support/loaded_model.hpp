// Models and weights with their elements in memory.
#pragma once

#include <filesystem>
#include <optional>

#include "kernels/engine/elements.hpp"
#include "kernels/engine/model.hpp"
#include "kernels/engine/weight.hpp"

namespace kvroof {

// As open_model; tensors are streamed: the peak is the weights and a few megabytes.
inline Model load_model(const std::filesystem::path& folder, std::optional<DType> type) {
  Model model = open_model(folder, type);
  make_elements(model);
  return model;
}

// Copies elements of type `from` into a new Weight of type `to` (rounding to nearest even).
inline Weight make_weight(DType from, const std::byte* elements, std::size_t rows, std::size_t cols, DType to) {
  Weight weight{to, rows, cols, AlignedBytes(rows * cols * size_of(to))};
  convert_elements(from, elements, rows * cols, to, weight.data.data());
  return weight;
}

}  // namespace kvroof
