// TensorLoader: places the rows of stored tensors in weights, read in pieces, so that nothing is held twice.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/engine/checkpoint.hpp"
#include "kernels/engine/weight_families.hpp"

namespace kvroof {

class TensorLoader {
 public:
  // Weights get elements of this type.
  explicit TensorLoader(DType type) : type_(type) {}

  // The tensor has the shape and an element type that the binding's checks have passed. Allocates a weight when its
  // first rows are met; beside the weights, holds a few megabytes.
  void load(const StoredTensor& stored, const TensorBinding& binding);

 private:
  std::span<const std::byte> read_raw(const StoredTensor& stored, std::size_t first, std::size_t count);
  // Elements [first, first + count) of the tensor as type_.
  std::span<const std::byte> read(const StoredTensor& stored, std::size_t first, std::size_t count);
  void load_rows(const StoredTensor& stored, const RowBlock& block, std::size_t cols);
  void load_transposed_block(const StoredTensor& stored, const RowBlock& block, std::size_t cols);
  void load_columns(const StoredTensor& stored, const TensorBinding& binding);
  void transpose(const std::byte* in, std::size_t in_stride, std::size_t rows, std::size_t cols, std::byte* out,
                 std::size_t out_stride) const;

  DType type_;
  std::vector<std::byte> raw_, converted_;
};

}  // namespace kvroof
