#include "sim/serving/server_steps.hpp"

#include <algorithm>

namespace kvroof {

ServerSteps::ServerSteps(std::span<Replica> groups, const SchedulerLimits& limits)
    : groups_(groups), one_ahead_(limits.one_ahead), stage_free_(limits.batches) {
  for (std::uint32_t batch = 0; batch < limits.batches; ++batch) ready_.push_back(batch);
}

std::optional<double> ServerSteps::next_event() const {
  const std::optional<double> begin = next_begin();
  if (passes_.empty() || (begin && *begin < passes_.front().end)) return begin;
  return passes_.front().end;
}

// When a batch may enter: one that waits for the first stage does then, others take who comes.
std::optional<double> ServerSteps::next_begin() const {
  if (ready_.empty()) return std::nullopt;
  std::optional<double> first;
  for (const Replica& group : groups_) {
    const bool goes_on = std::ranges::any_of(ready_, [&](std::uint32_t batch) { return group.runs(batch); });
    const std::optional<double> comes = goes_on ? asked_ : group.next_taken();
    if (comes && (!first || *comes < *first)) first = comes;
  }
  if (!first) return std::nullopt;
  return std::max({*first, stage_free_.front(), asked_});
}

std::vector<std::size_t> ServerSteps::run_event() {
  const double now = next_event().value();
  std::vector<std::size_t> finished;
  if (!passes_.empty() && passes_.front().end <= now) end_pass(finished);
  if (stage_free_.front() <= now) begin_pass(now);
  return finished;
}

void ServerSteps::end_pass(std::vector<std::size_t>& finished) {
  const Pass pass = passes_.front();
  passes_.pop_front();
  for (Replica& group : groups_) {
    const std::vector<std::size_t> of_group = group.end_step(pass.batch, pass.end);
    finished.insert(finished.end(), of_group.begin(), of_group.end());
  }
  ready_.push_back(pass.batch);
}

void ServerSteps::begin_pass(double now) {
  for (auto batch = ready_.begin(); batch != ready_.end(); ++batch) {
    Replica::SettledStep all;
    std::vector<const Replica*> run;
    for (Replica& group : groups_) {
      // Where a batch has nobody there is no step that was settled.
      const double seen_until = one_ahead_ && group.runs(*batch) ? asked_ : now;
      const Replica::SettledStep step = group.settle_step(*batch, now, seen_until);
      if (step.runs) run.push_back(&group);
      all.answers += step.answers;
      all.prompt_tokens += step.prompt_tokens;
    }
    double seconds = 0;
    for (const Replica* group : run) seconds = std::max(seconds, group->settled_seconds(all, groups_.size()));
    if (!(seconds > 0)) continue;
    pass_through(*batch, now, seconds);
    ready_.erase(batch);
    break;
  }
  asked_ = now;
}

void ServerSteps::pass_through(std::uint32_t batch, double now, double seconds) {
  const double each = seconds / static_cast<double>(stage_free_.size());
  double end = now;
  for (double& free : stage_free_) free = end = std::max(end, free) + each;
  passes_.push_back({batch, end});
  std::size_t running = 0;
  for (Replica& group : groups_) {
    group.count_step(each);
    running += group.running();
  }
  most_running_ = std::max(most_running_, running);
}

Replica::Totals ServerSteps::totals() const {
  Replica::Totals all;
  for (const Replica& group : groups_) all += group.totals();
  const auto groups = static_cast<double>(groups_.size());
  all.steps /= groups_.size();
  for (double* sum : {&all.busy_seconds, &all.cache_byte_seconds, &all.idle_byte_seconds, &all.host_byte_seconds}) {
    *sum /= groups;
  }
  all.most_running = most_running_;
  return all;
}

}  // namespace kvroof
