// Random rows as a cache stores them, beside the numbers that a kernel must read from them.
#pragma once

#include <random>
#include <vector>

#include "kernels/cuda/arguments.hpp"
#include "sim/core/dtype.hpp"

namespace kvroof::cuda {

// A row of numbers in the stored type, beside what the kernel must read from it.
struct StoredRows {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [rows, width], after the scale
  std::vector<float> scales;  // [rows], int8 and int4
  std::uint32_t row_bytes = 0;
};

inline StoredRows stored_rows(Stored type, std::size_t rows, std::uint32_t width, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const unsigned bits = type == Stored::kInt8 ? 8 : type == Stored::kInt4 ? 4 : 16;
  StoredRows out;
  out.row_bytes = (width * bits / 8 + 15) / 16 * 16;
  out.bytes.assign(rows * out.row_bytes, std::byte{0xff});  // what lies between rows must not be read as numbers
  for (std::size_t r = 0; r < rows; ++r) {
    std::byte* row = out.bytes.data() + r * out.row_bytes;
    const float scale = bits == 16 ? 1 : 0.01F * static_cast<float>(1 + r % 7);
    if (bits < 16) out.scales.push_back(scale);
    for (std::uint32_t c = 0; c < width; ++c) {
      float value = normal(random);
      if (bits == 16) {
        const DType as = type == Stored::kBF16 ? DType::kBF16 : DType::kF16;
        convert_from_float(as, {&value, 1}, row + 2 * c);
        convert_to_float(as, row + 2 * c, {&value, 1});
      } else if (bits == 8) {
        const auto stored = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
        row[c] = static_cast<std::byte>(stored);
        value = scale * static_cast<float>(stored);
      } else {
        const int stored = static_cast<int>(random() % 16) - 8;
        const auto nibble = static_cast<unsigned>(stored & 15) << (c % 2 * 4);
        const unsigned old = c % 2 == 0 ? 0 : static_cast<unsigned>(row[c / 2]);
        row[c / 2] = static_cast<std::byte>(old | nibble);
        value = scale * static_cast<float>(stored);
      }
      out.values.push_back(value);
    }
  }
  return out;
}

}  // namespace kvroof::cuda
