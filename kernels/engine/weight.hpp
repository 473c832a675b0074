// Weights as a back end holds them: a row-major matrix [rows, cols] of f32, f16 or bf16, aligned for SIMD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "kernels/engine/random_fill.hpp"
#include "sim/attention/attention.hpp"
#include "sim/core/dtype.hpp"

namespace kvroof {

class SafetensorsFile;
struct TensorInfo;

// Memory aligned to 64 bytes (2 MiB and advised for huge pages from 4 MiB on), uninitialised.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t size);
  [[nodiscard]] std::byte* data() { return data_.get(); }
  [[nodiscard]] const std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Free {
    std::align_val_t alignment;
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

// Factors of a stored matrix in MXFP4 (a byte of exponent each) or FP8: one for each block of its rows and columns.
struct StoredScales {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* tensor = nullptr;  // null: elements are plain
  std::size_t rows = 1, cols = 1;      // of a block
};

// A rectangle of a stored tensor whose elements are a weight's. A vector is a matrix of one column.
struct StoredBlock {
  const SafetensorsFile* file = nullptr;  // open as long as the model's checkpoint
  const TensorInfo* tensor = nullptr;
  std::size_t row = 0, rows = 0;
  std::size_t col = 0, cols = 0;  // whole rows unless the block is transposed
  std::size_t to = 0;             // the element of the weight that the first one of the block is
  bool transposed = false;        // its columns are (parts of) the weight's rows; otherwise all follow each other
  std::size_t step = 1;           // from one of its rows (transposed: columns) to the next
  std::size_t width = 0;          // elements of a stored row
  StoredScales scales{};
};

// A matrix as torch's Linear stores it, [out, in]; a vector has one row. Its elements are in `data`; where there is
// none yet, they lie in a checkpoint (`stored`), or are to be made from a seed (elements.hpp).
struct Weight {
  DType type = DType::kF32;
  std::size_t rows = 0;
  std::size_t cols = 0;
  AlignedBytes data;
  std::vector<StoredBlock> stored{};
  RandomFill random{};

  [[nodiscard]] bool empty() const { return rows == 0; }
  [[nodiscard]] std::uint64_t bytes() const { return std::uint64_t{rows} * cols * size_of(type); }
  [[nodiscard]] RowsView view() const { return {data.data(), type, cols, cols, rows}; }
};

// Converts `count` elements of type `from` (f32, f16, bf16) into type `to` at `out`, rounding to nearest even.
void convert_elements(DType from, const std::byte* elements, std::size_t count, DType to, std::byte* out);

}  // namespace kvroof
