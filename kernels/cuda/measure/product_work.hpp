// Matrix products as the engine launches them, on weights that no cache holds, to be timed.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/split_k.hpp"
#include "kernels/cuda/library_linear.hpp"
#include "kernels/cuda/measure/cold_memory.hpp"
#include "kernels/cuda/measure/timing.hpp"

namespace kvroof::cuda {

// Of bf16 weights [rows, cols]; gated: two of them; norm: of the inputs; add: to what is in the output.
struct Product {
  std::uint32_t rows, cols;
  bool gated = false;
  NormMode norm = NormMode::kNone;
  bool add = false;
};

// Weights once, inputs and outputs of `tokens` rows; two for each weight and row.
double bytes_of(const Product& product, std::uint32_t tokens);
double flops_of(const Product& product, std::uint32_t tokens);

// One product or several after each other, with random weights as often as cold data need.
class Products {
 public:
  // By the library, unless it is null.
  Products(std::vector<Product> products, std::uint32_t tokens, const CardFacts& card, CublasLt* library = nullptr);

  // Of all products once. Throws Error when the device or the library refuses.
  Measured time(double seconds);
  [[nodiscard]] double bytes() const;
  [[nodiscard]] double flops() const;
  [[nodiscard]] double weight_bytes() const { return static_cast<double>(set_bytes_); }

 private:
  void launch(unsigned set);

  OpenStream open_;
  LibraryLinear library_linear_;
  SplitKMemory split_k_;
  bool by_library_;
  std::vector<Product> products_;
  std::uint32_t tokens_;
  CardFacts card_;
  std::size_t set_bytes_ = 0, sets_ = 0, out_at_ = 0;
  std::vector<std::size_t> at_;  // of each product in a set
  DeviceBuffer weights_, vectors_, scale_;
};

}  // namespace kvroof::cuda
