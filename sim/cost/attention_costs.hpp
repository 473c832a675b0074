// What attention takes; for the sources of the cost model alone.
#pragma once

#include "sim/cost/index_costs.hpp"
#include "sim/cost/kernel_rates.hpp"
#include "sim/cost/state_costs.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

class AttentionCosts {
 public:
  AttentionCosts(const Placement& placed, const KernelRates& rates, const Device& device);

  // Of a decode step of so many sequences, `reading` being bytes/s of their rows; of layers with states as well.
  void add_step(Parts& parts, const ResidencySummary& residency, const StepTraffic& traffic, std::uint64_t sequences,
                std::uint64_t queries, Rate reading) const;
  // Of prompts, `traffic` being that of their computed tokens; `beside`: kernels start with those of answers in the
  // same pass.
  void add_prompts(Parts& parts, const ResidencySummary& residency, const StepTraffic& traffic,
                   std::uint64_t sequences, bool beside = false) const;
  // Decode attention by itself over so many bytes of cache, those of so many KV heads of sequences.
  [[nodiscard]] Parts call(double kv_bytes, double heads) const;
  [[nodiscard]] const StateCosts& states() const { return states_; }

  // Bytes of one probability, f32, for each row that those queries attend to, of each query head of its group.
  [[nodiscard]] double probability_bytes(const ResidencySummary& residency, std::uint64_t queries) const;
  // Bytes on this device, in KV heads, of the rows before those tokens of a prompt that are computed: their queries
  // read these.
  [[nodiscard]] double earlier_bytes(const ResidencySummary& residency) const;
  // A latent row is longer than k and v of a head: (rank + rope) + rank to (nope + rope) + v (arXiv:2405.04434, 2.1.2).
  [[nodiscard]] double heads_beside_latent() const;

 private:
  // What decode attention could compute in the time that so many KV heads of sequences take however short they are.
  [[nodiscard]] double operations_of(double heads) const { return heads * head_seconds_ * peak_.value; }

  const Placement& placed_;
  const KernelRates& rates_;
  Rate peak_;                 // operations/s
  Rate prompt_peak_;          // likewise of prompts
  Rate start_, call_, cold_;  // seconds; of a call by itself, which starts on an idle memory
  double head_seconds_ = 0;   // of one KV head of a sequence, however short, spread over the multiprocessors
  IndexCosts index_;
  StateCosts states_;
};

}  // namespace kvroof
