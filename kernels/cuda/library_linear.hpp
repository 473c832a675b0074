// Linear maps of many vectors by a library's products: vectors are normed and rounded before, and what follows the
// product (bias, activation, gate, …) is done after it. They replace run_linear where the library wins.
#pragma once

#include <string>

#include "kernels/cuda/cublaslt.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/device_buffer.hpp"

namespace kvroof::cuda {

// For one vector our own kernel does on the way what comes before and after the product, and no launch is between. For
// more the library wins: the products of a layer of MPT-7B took 128 us by it for 16 vectors on an H200, 328 us by our
// own kernels, whose blocks each round all vectors anew (validation/measured/h200-2026-11-27/limits.json).
constexpr std::uint32_t kMostOwnVectors = 1;

// Vectors that the library is given at a time: more make no product faster, and would take memory for their rounded
// copies and gates. A multiple of 4 floats, so that every slice's results are as aligned as the first's.
constexpr std::uint32_t kSliceVectors = 8192;

class LibraryLinear {
 public:
  // `library` must outlive this; null: nothing is ever run.
  LibraryLinear(Stream& stream, CublasLt* library, LinearBy by) : stream_(stream), library_(library), by_(by) {}

  // Launches what run_linear would, by the library. False: it is to be run by run_linear, whether the library does not
  // win, cannot serve such a map, or refused.
  bool run(Stored weights, LinearArguments a);

  // Whether run() would try: the library is faster here, or was asked for, and can serve such a map.
  [[nodiscard]] bool wins(const LinearArguments& a) const;
  // Whether there were maps that a library would have won.
  [[nodiscard]] bool missed() const { return missed_; }
  // Why the library did not serve where it should have; empty: it did, or there is none.
  [[nodiscard]] std::string problem() const;
  // Device memory that it holds, and the most that so many vectors take of maps with so many columns and gated rows.
  [[nodiscard]] std::uint64_t held_bytes() const { return workspace_.bytes() + rounded_.bytes() + ups_.bytes(); }
  [[nodiscard]] std::uint64_t most_bytes(std::uint32_t vectors, std::uint32_t cols, std::uint32_t gated_rows) const;

 private:
  bool reserve(const LinearArguments& a);
  bool run_slice(Stored weights, const LinearArguments& a);
  bool multiply(Stored weights, const ProductArguments& a);

  Stream& stream_;
  CublasLt* library_;
  LinearBy by_;
  bool missed_ = false;
  std::string no_memory_;
  DeviceBuffer workspace_, rounded_, ups_;
};

}  // namespace kvroof::cuda
