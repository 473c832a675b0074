#include "sim/serving/disaggregated.hpp"

#include <algorithm>
#include <deque>
#include <span>
#include <utility>

#include "sim/serving/event_queue.hpp"
#include "sim/serving/router.hpp"
#include "sim/serving/server_steps.hpp"

namespace kvroof {
namespace {

class Disaggregation {
 public:
  Disaggregation(const ServingCosts& prompt_costs, const ServingCosts& costs, const DisaggregatedSetup& setup,
                 const std::vector<Request>& requests, ServingOutcome& outcome)
      : prompt_costs_(prompt_costs),
        costs_(costs),
        setup_(setup),
        outcome_(outcome),
        served_(outcome.requests),
        arrivals_(requests, setup.clients, setup.pauses, setup.most_requests, outcome.requests),
        late_(setup.late, outcome.requests),
        prompts_(served_) {
    for (ServedRequest& prompt : prompts_) {
      prompt.moves = prompt.request.output > 1;
      prompt.request.output = 1;
    }
    for (std::uint32_t i = 0; i < setup.prompt_replicas; ++i) {
      replicas_.emplace_back(prompt_costs, setup.prompt_limits, setup.prefixes, prompts_, [](double) {});
    }
    for (std::uint32_t i = 0; i < setup.replicas; ++i) {
      replicas_.emplace_back(costs, setup.limits, std::nullopt, served_,
                             [this](double gap) { outcome_.gaps.add(gap); });
    }
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      servers_.emplace_back(std::span(&replicas_[i], 1), computes_prompts(i) ? setup.prompt_limits : setup.limits);
    }
    link_free_.resize(replicas_.size());
    waiting_.resize(replicas_.size());
  }

  void run() {
    while (!outcome_.gave_up && (arrivals_.more() || !events_.empty())) {
      if (arrivals_.come_before(events_)) {
        place();
        continue;
      }
      const auto [now, what] = events_.next();
      outcome_.seconds = std::max(outcome_.seconds, now);
      if (what < served_.size()) {
        end_transfer(what, now);
      } else if (computes_prompts(what - served_.size())) {
        run_prompts(what - served_.size(), now);
      } else {
        run_answers(what - served_.size(), now);
      }
    }
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      (computes_prompts(i) ? outcome_.prompt_totals : outcome_.totals) += servers_[i].totals();
    }
    arrivals_.end();
  }

 private:
  [[nodiscard]] bool computes_prompts(std::size_t replica) const { return replica < setup_.prompt_replicas; }

  // Requests that a server has, with those that wait for a place.
  [[nodiscard]] std::size_t load(std::size_t i) const {
    return replicas_[i].waiting() + replicas_[i].running() + replicas_[i].expected() + waiting_[i].size();
  }
  [[nodiscard]] std::size_t chosen_for_answer() const {
    std::size_t least = setup_.prompt_replicas;
    for (std::size_t i = least + 1; i < replicas_.size(); ++i) {
      if (load(i) < load(least)) least = i;
    }
    return least;
  }

  void place() {
    if (arrivals_.is_last()) {
      std::size_t waiting = 0;
      for (std::size_t i = 0; i < replicas_.size(); ++i) waiting += replicas_[i].waiting() + waiting_[i].size();
      outcome_.waiting_at_end = std::max(outcome_.waiting_at_end, waiting);
    }
    const std::span servers_of_prompts(replicas_.data(), setup_.prompt_replicas);
    const std::size_t request = arrivals_.take();
    const std::size_t to = chosen_replica(servers_of_prompts, served_[request].request, setup_.routes_by_prefix);
    prompts_[request].request.arrival = served_[request].request.arrival;
    prompts_[request].replica = static_cast<std::uint32_t>(to);
    replicas_[to].arrive(request);
    note_event(to);
  }

  void run_prompts(std::size_t i, double now) {
    const std::vector<std::size_t> computed = servers_[i].run_event();
    note_event(i);
    for (const std::size_t request : computed) hand_over(request, now);
  }

  // A first token is there: the answer is, or it goes on elsewhere.
  void hand_over(std::size_t request, double now) {
    ServedRequest& served = served_[request];
    served.placed = prompts_[request].placed;
    served.cached = prompts_[request].cached;
    served.first_token = now;
    served.transfer.from = prompts_[request].replica;
    if (served.request.output == 1) {
      served.finished = now;
      end({&request, 1}, now);
      return;
    }
    const std::size_t to = chosen_for_answer();
    served.replica = static_cast<std::uint32_t>(to - setup_.prompt_replicas);
    waiting_[to].push_back(request);
    // A server that makes a step gives places at its end.
    if (!servers_[to].under_way()) give_places(to, now);
  }

  void run_answers(std::size_t i, double now) {
    const std::vector<std::size_t> finished = servers_[i].run_event();
    note_event(i);
    give_places(i, now);
    end(finished, now);
  }

  void end(std::span<const std::size_t> answered, double now) {
    arrivals_.answered(answered, now);
    if (late_.too_many_with(answered)) outcome_.gave_up = true;
  }

  void give_places(std::size_t i, double now) {
    while (!waiting_[i].empty() && replicas_[i].has_place(waiting_[i].front())) {
      replicas_[i].expect(waiting_[i].front());
      begin_transfer(waiting_[i].front(), i, now);
      waiting_[i].pop_front();
    }
  }

  void begin_transfer(std::size_t request, std::size_t to, double now) {
    ServedRequest& served = served_[request];
    Transfer& transfer = served.transfer;
    // The side whose devices are fewer has most for each of them.
    const std::uint32_t prompt = served.request.prompt;
    transfer.bytes = std::max(prompt_costs_.moved_bytes(prompt), costs_.moved_bytes(prompt));
    const double seconds = transfer.bytes / setup_.link.bytes_per_s;
    transfer.begun = std::max({now, link_free_[transfer.from], link_free_[to]});
    transfer.ended = transfer.begun + seconds + setup_.link.latency_seconds;
    link_free_[transfer.from] = link_free_[to] = transfer.begun + seconds;
    outcome_.link_seconds += seconds;
    events_.note(request, transfer.ended);
  }

  void end_transfer(std::size_t request, double now) {
    events_.note(request, std::nullopt);
    const Transfer& transfer = served_[request].transfer;
    replicas_[transfer.from].release(request, now);
    note_event(transfer.from);
    const std::size_t to = setup_.prompt_replicas + served_[request].replica;
    replicas_[to].join(request, now);
    note_event(to);
  }

  // When the replica must be asked next, after something happened to it.
  void note_event(std::size_t i) { events_.note(served_.size() + i, servers_[i].next_event()); }

  const ServingCosts& prompt_costs_;
  const ServingCosts& costs_;
  const DisaggregatedSetup& setup_;
  ServingOutcome& outcome_;
  std::vector<ServedRequest>& served_;
  Arrivals arrivals_;
  LateRequests late_;
  std::vector<ServedRequest> prompts_;  // the same as requests of one token
  std::vector<Replica> replicas_;       // those of prompts, then those of answers; by their number in all of:
  std::vector<ServerSteps> servers_;
  std::vector<double> link_free_;                // from when on no cache has been promised the link
  std::vector<std::deque<std::size_t>> waiting_;  // requests with a first token, for places
  // Transfers by the number of their request, then replicas, whose steps take what just came.
  EventQueue events_;
};

}  // namespace

ServingOutcome simulate_disaggregated(const ServingCosts& prompt_costs, const ServingCosts& costs,
                                      const DisaggregatedSetup& setup, const std::vector<Request>& requests) {
  ServingOutcome outcome;
  Disaggregation(prompt_costs, costs, setup, requests, outcome).run();
  return outcome;
}

}  // namespace kvroof
