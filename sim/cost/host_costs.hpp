// What the host takes: launches, sampling, handing out of work; for the sources of the cost model alone.
#pragma once

#include "sim/cost/launches.hpp"
#include "sim/cost/parts.hpp"

namespace kvroof {

class HostCosts {
 public:
  explicit HostCosts(const Placement& placed);

  // Behind the parts that are there already and `beside`, seconds of other work in the iteration.
  void add_step(Parts& parts, std::uint64_t sequences, StepTokens tokens, double beside) const;
  void add_prompts(Parts& parts, std::uint64_t sequences, double beside) const;
  // Of sequences of answers, and of prompts, in one pass.
  void add_mixed(Parts& parts, std::uint64_t answers, StepTokens tokens, std::uint64_t prompts, double beside) const;
  // Of launching all kernels of a step of so many sequences, and of prompts: nothing where they are replayed.
  [[nodiscard]] double step_launches(std::uint64_t sequences, std::uint64_t tokens) const;
  [[nodiscard]] double prompt_launches() const;

 private:
  struct Launching {
    bool replayed = false;  // from a graph
    double launch_us = 0;   // else, of each kernel
  };
  [[nodiscard]] Launching of_step(std::uint64_t sequences, std::uint64_t tokens) const;
  [[nodiscard]] Launching of_prompts() const;
  void add(Parts& parts, std::uint64_t sequences, std::uint64_t sampled, Launching launching, double beside) const;
  // Of all kernels of a step, so many microseconds each.
  [[nodiscard]] double seconds_of_kernels(double each_us) const { return kernels_ * each_us * 1e-6; }

  const Placement& placed_;
  double kernels_ = 0;  // of a step
};

}  // namespace kvroof
