// What products and attention of a CPU reach when they cycle through so many bytes: from sets that a cache holds to
// those that none does, in turns spread over a calibration.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/calibration.hpp"
#include "kernels/cpu/calibration_work.hpp"

namespace kvroof {

// The median of turns, and how far the farthest of them is from it. Of n exchangeable turns, the range of them holds
// the next with a chance of (n − 1) / (n + 1): nine turns make an interval of 80 %. At least one turn.
Turns turns_of(std::vector<double> seconds);

class WorkingSets {
 public:
  // The operators must outlive this. Allocates about four times the cache, and twice what no cache holds.
  explicit WorkingSets(Ops& ops);

  // Works on all sets, one after the other, again and again for so long.
  void take_turn(double seconds);
  // by_working_set of `result`, and the starts of operators.
  void report(CpuCalibration& result) const;

 private:
  struct Set {
    std::uint64_t bytes = 0, chunk = 0;
    std::vector<Weight> weights;           // of a chunk each
    std::unique_ptr<AttentionWork> cache;  // the same in calls of a chunk
    std::size_t next = 0;
    std::vector<double> products, calls;            // seconds of a chunk in this turn
    std::vector<double> product_turns, call_turns;  // their medians, a turn each
  };

  void add_set(std::uint64_t bytes);
  void work_on(Set& set);
  void small_layers();

  Ops& ops_;
  std::uint64_t cache_bytes_;
  std::vector<Set> sets_;
  std::vector<float> x_, out_;
  std::vector<Weight> small_;  // products of some layers of a small model
  ElementwiseWork elementwise_;
  AttentionWork one_slot_;
  struct Start {
    std::vector<double> seconds, turns;  // of one call in this turn, and their medians
  };
  Start small_products_, elementwise_start_, attention_start_;
};

}  // namespace kvroof
