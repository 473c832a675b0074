// Weights as a back end holds them: a row-major matrix [rows, cols] of f32, f16 or bf16, aligned for SIMD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/engine/random_fill.hpp"
#include "sim/attention/attention.hpp"
#include "sim/core/dtype.hpp"

namespace kvroof {

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
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

// A matrix as torch's Linear stores it, [out, in]; a vector has one row.
struct Weight {
  DType type = DType::kF32;
  std::size_t rows = 0;
  std::size_t cols = 0;
  AlignedBytes data;
  RandomFill random{};  // what the elements are where there is no data yet (random_model.hpp)

  [[nodiscard]] bool empty() const { return rows == 0; }
  [[nodiscard]] std::uint64_t bytes() const { return std::uint64_t{rows} * cols * size_of(type); }
  [[nodiscard]] RowsView view() const { return {data.data(), type, cols, cols, rows}; }
};

// Converts `count` elements of type `from` (f32, f16, bf16) into type `to` at `out`, rounding to nearest even.
void convert_elements(DType from, const std::byte* elements, std::size_t count, DType to, std::byte* out);

// Copies elements of type `from` into a new Weight of type `to` (rounding to nearest even).
Weight make_weight(DType from, const std::byte* elements, std::size_t rows, std::size_t cols, DType to);

}  // namespace kvroof
