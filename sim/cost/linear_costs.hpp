// What products with weights take, and the kernels between them.
#pragma once

#include "sim/cost/kernel_rates.hpp"
#include "sim/cost/launches.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

// Of what products of the best shape reach (matmul_fraction), what products of any shape of at least 1,024 rows and
// columns do: tables of A100 and H100 fit 0.96 and 0.98 (half of the shapes fitted).
inline constexpr double kAnyShapeShare = 0.97;

// What products with weights have to do in a pass of one group of devices, on all of its devices together.
struct LinearWork {
  std::uint64_t tokens = 0;
  double fill = 1;                          // as of Pass
  double bytes = 0, elements = 0;           // of weights that are read
  double packed = 0;                        // of these elements, those that are unpacked
  double expert_bytes = 0;                  // of routed experts, as many as are expected
  double flops = 0;                         // as if every group were as full as this one
  double absent_flops = 0;                  // of these, what experts do not compute as others are not
  double activation_bytes = 0;              // of all operators, in 32 bits

  [[nodiscard]] double operations() const { return flops - absent_flops; }
};

class LinearCosts {
 public:
  LinearCosts(const Placement& placed, const KernelRates& rates, const Device& device);

  // Traffic counts weights in one type.
  [[nodiscard]] LinearWork work_of(const StepTraffic& traffic, std::uint64_t tokens, double fill) const;

  // Products and element-wise kernels of a decode step, which reads weights so and computes for `computed` tokens.
  void add_step(Parts& parts, const LinearWork& work, std::uint64_t computed, Rate reading) const;
  void add_prompts(Parts& parts, const LinearWork& work) const;
  // Of prompts and answers together, weights being read once; `prompts`: what prompts alone have to do.
  void add_mixed(Parts& parts, const LinearWork& all, const LinearWork& prompts, Rate reading) const;
  // The head by itself.
  void add_head(Parts& parts, std::uint64_t tokens, Rate reading) const;
  [[nodiscard]] Parts product(std::uint64_t m, std::uint64_t n, std::uint64_t k) const;
  [[nodiscard]] Parts elementwise_call(std::uint64_t elements) const;

 private:
  void add_products(Parts& parts, const LinearWork& work, Rate reading, Rate peak) const;
  void set_own_products(const Device& device);
  [[nodiscard]] double uncached(std::uint64_t tokens) const;
  [[nodiscard]] double activation_seconds(double bytes, std::uint64_t tokens) const;
  [[nodiscard]] double expert_row_seconds(std::uint64_t tokens) const;
  [[nodiscard]] double walked_columns() const;

  const Placement& placed_;
  const KernelRates& rates_;
  MoreLaunches more_;
  Rate peak_;                       // operations/s
  Rate start_, elementwise_start_;  // seconds
  double prompt_share_ = 1;         // of the peak
  double unpack_seconds_ = 0;       // of one parameter
  Rate tile_;                       // seconds of one parameter in a tile of rows; 0: products take the rows there are
  // What a product starts later for its inputs' sake, in a model, and still later by itself.
  double quantise_fused_ = 0, quantise_apart_ = 0;
  Rate walk_;                       // seconds of a column of a product's matrix
};

}  // namespace kvroof
