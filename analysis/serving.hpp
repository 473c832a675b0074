// What a server does with requests: batches of them, loops of clients, arrivals from outside.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/fullest_group.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

// Of a request among others; seconds.
struct RequestTimes {
  Estimate first_token, token;
  Estimate most_tokens;  // between most tokens: a step alone, unless prompts are in most of them

  // From its arrival to the last of so many tokens.
  [[nodiscard]] Estimate whole(double output) const;
};

// Of the requests that a server has, in tokens; `input`: of a prompt, those that are computed.
struct RequestLengths {
  std::uint32_t input = 1, output = 1;
  bool equal = false;  // for all; else these are means
};

// One deployment that serves requests. Loops need room for one sequence (fits).
class Server {
 public:
  // `mean` is of a decode step of a sequence; `half_written` of one in the middle of its answer, by which an engine
  // that admits by the prompt fills its memory.
  Server(CostModel cost, ResidencySummary mean, ResidencySummary half_written, RequestLengths lengths);

  [[nodiscard]] const CostModel& cost() const { return cost_; }
  [[nodiscard]] const ResidencySummary& residency() const { return mean_; }
  [[nodiscard]] bool fits() const { return cost_.memory().largest_batch(mean_) > 0; }

  // Prompts of a batch, then its decode steps; the first token comes with the prompts. Seconds.
  [[nodiscard]] Estimate static_batch(std::uint32_t batch) const;
  // So many clients that each wait for their answer: no more run at once than fit, and a token shares its step with
  // the prompts of the others.
  [[nodiscard]] RequestTimes closed_loop(std::uint32_t clients) const;
  // Tokens a second of that loop: while each client gets one answer all their prompts and an answer's steps are run.
  [[nodiscard]] Estimate closed_loop_rate(std::uint32_t clients) const;
  // Requests that arrive so many a second: as many are there as arrive while one is served. Nothing where more arrive
  // than as many as fit can serve: how long they wait depends on how long the load lasts.
  [[nodiscard]] std::optional<RequestTimes> open_loop(double arrivals) const;
  // As many as fit, while others wait.
  [[nodiscard]] RequestTimes crowded() const;
  // Tokens a second with requests waiting: as many run as fit, and each step has its share of new prompts.
  [[nodiscard]] std::optional<Estimate> saturated() const;

 private:
  [[nodiscard]] Estimate prompts(double count, double answers = 0) const;
  [[nodiscard]] Estimate beside_step(double clients, double answers = 0) const;
  [[nodiscard]] Estimate arrival() const;
  [[nodiscard]] std::uint64_t most_at_once() const;
  [[nodiscard]] double prompts_a_pass() const;
  // Of so many sequences, those that pass through the stages together; and the step of that pass.
  [[nodiscard]] double in_a_pass(double running) const;
  [[nodiscard]] Estimate step_of(double running, double beside = 0) const;
  [[nodiscard]] double prompts_ahead(double running, double busy) const;
  [[nodiscard]] double steps_of_a_prompt() const;  // whose room for prompts one takes
  [[nodiscard]] double share_in_chunks(double running) const;
  // Of clients whose prompts come in pieces, or are computed whole.
  [[nodiscard]] RequestTimes loop(std::uint32_t clients, bool in_chunks) const;
  [[nodiscard]] Estimate loop_rate(std::uint32_t clients, bool in_chunks) const;
  [[nodiscard]] double clients_of_a_group(double running) const;
  [[nodiscard]] double steps_to_first(double clients) const;
  [[nodiscard]] RequestTimes between_chunks(double running) const;
  [[nodiscard]] RequestTimes mixed(double running) const;
  [[nodiscard]] Estimate held_up_less(const Estimate& token, double running) const;
  [[nodiscard]] bool waves() const { return cost_.engine().prompts_first && lengths_.equal; }
  [[nodiscard]] RequestTimes in_waves(double running) const;
  [[nodiscard]] RequestTimes under_arrivals(std::uint32_t running, double arrivals) const;

  CostModel cost_;
  ResidencySummary mean_, half_written_;
  RequestLengths lengths_;
  FullestGroup groups_;
  double steps_ = 1;   // of an answer, that of its first token included
  double a_step_ = 1;  // tokens that a step makes of a sequence: more than one where they are drafted
};

}  // namespace kvroof
