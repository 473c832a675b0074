// When the steps of a server begin and end: its groups of devices step together, and its batches pass through its
// stages one behind the other. A server of one group and one stage makes one step after another.
//
// Groups that attend to sequences of their own share experts, and wait for each other at every layer of them: a step
// takes as long as in the group where it takes longest, and a group that has nothing to do takes part in it.
//
// A server of several stages has a batch of its sequences for each. A batch enters when the first stage is free, every
// stage has it for an equal part of its time, behind the batch that came before it, and its tokens are there when it
// leaves the last. Of batches that are not under way, that which has waited longest enters first.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "sim/serving/replica.hpp"

namespace kvroof {

class ServerSteps {
 public:
  // The schedulers of the groups, at least one, outlive this and do not move. They have these limits.
  ServerSteps(std::span<Replica> groups, const SchedulerLimits& limits);

  // When the server must be asked again: a batch leaves the last stage, or one may enter the first. Nothing: it idles.
  [[nodiscard]] std::optional<double> next_event() const;
  // What happens at that moment; the requests that are finished then.
  std::vector<std::size_t> run_event();

  [[nodiscard]] bool under_way() const { return !passes_.empty(); }
  // Of the server: a step counts once, sequences of all groups add up, bytes are of a mean device. Seconds are those of
  // the first stage.
  [[nodiscard]] Replica::Totals totals() const;

 private:
  struct Pass {
    std::uint32_t batch = 0;
    double end = 0;
  };

  [[nodiscard]] std::optional<double> next_begin() const;
  void end_pass(std::vector<std::size_t>& finished);
  void begin_pass(double now);
  void pass_through(std::uint32_t batch, double now, double seconds);

  std::span<Replica> groups_;
  bool one_ahead_;
  std::vector<double> stage_free_;   // when each stage has done what is under way
  std::deque<Pass> passes_;          // under way, in the order in which they began and will end
  std::deque<std::uint32_t> ready_;  // the other batches, those that have waited longest first
  double asked_ = 0;                 // when a batch last entered, or might have
  std::size_t most_running_ = 0;     // in all groups
};

}  // namespace kvroof
