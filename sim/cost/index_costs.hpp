// Attention to the tokens that an index chooses: queries meet the keys of all tokens, and the highest scores are found;
// for the sources of the cost model alone.
#pragma once

#include "sim/cost/kernel_rates.hpp"
#include "sim/traffic/traffic.hpp"

namespace kvroof {

class IndexCosts {
 public:
  IndexCosts(const Placement& placed, const KernelRates& rates, const Device& device);

  // What scores and chooses tokens, for so many queries; `beside`: its kernels start with those of others.
  void add(Parts& parts, const StepTraffic& traffic, std::uint64_t queries, bool prompts, bool beside = false) const;
  // What queries beside compressed rows take, whatever rows they read.
  void add_wide_queries(Parts& parts, std::uint64_t queries) const;
  // What attention reaches of this rate where it reads chosen rows; elsewhere the rate itself.
  [[nodiscard]] Rate of_chosen_rows(Rate rate, double share) const;
  // What attention computes on this device, of what all compute.
  [[nodiscard]] double head_share() const;
  // Whether queries of a prompt read the tokens that the index chose.
  [[nodiscard]] bool chooses(const LayerCounts& prompt) const;

 private:
  const Placement& placed_;
  const KernelRates& rates_;
  Rate peak_;              // operations/s of the products of an index
  double wide_query_ = 0;  // seconds of a query of 64 heads beside compressed rows, whatever rows it reads
  double score_ = 0;       // seconds of one score of a prompt, beside its products
};

}  // namespace kvroof
