// What devices that share a model take to exchange activations: sums over those of a layer, hand-overs between stages,
// tokens on their way to experts and back; for the sources of the cost model alone.
#pragma once

#include "sim/cost/kernel_rates.hpp"

namespace kvroof {

class LinkCosts {
 public:
  LinkCosts(const Placement& placed, const Device& device);

  // Of a pass of so many tokens through all layers.
  void add(Parts& parts, std::uint64_t tokens) const;

 private:
  void set_sums(const Device& device);
  // `hosted`: microseconds that a sum starts later where the host passes it on.
  void set_hops(const Device& device, double hosted);
  void set_exchange(const Device& device);
  [[nodiscard]] double sum_seconds(double bytes) const;
  [[nodiscard]] double exchange_seconds(std::uint64_t tokens) const;

  const Placement& placed_;
  double domain_ = 1;  // devices that links join
  double sum_start_ = 0, bandwidth_ = 0;      // seconds and bytes/s, of a sum over devices that share a layer
  double one_shot_bandwidth_ = 0;  // bytes/s at which a sum reads all others' messages at once; 0: a ring alone
  double hop_start_ = 0, hop_bandwidth_ = 0;  // of a hand-over between stages
  // Of a layer's tokens on their way to experts and back: seconds, and seconds of a token.
  double exchange_start_ = 0, exchange_token_ = 0;
};

}  // namespace kvroof
