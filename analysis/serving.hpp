// What a server does with requests: batches of them, loops of clients, arrivals from outside.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/published_setting.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

// Of a request among others; seconds.
struct Served {
  Estimate first_token, token;
  Estimate most_tokens;  // between most tokens: a step alone, unless prompts are in most of them

  // From its arrival to the last of so many tokens.
  [[nodiscard]] Estimate whole(double output) const;
};

// The server of a setting. Loops need room for one sequence (fits).
class Server {
 public:
  explicit Server(const PublishedSetting& setting);

  [[nodiscard]] const CostModel& cost() const { return cost_; }
  [[nodiscard]] const ResidencySummary& residency() const { return residency_; }
  [[nodiscard]] bool fits() const { return cost_.largest_batch(residency_) > 0; }

  // Prompts of a batch, then its decode steps; the first token comes with the prompts. Seconds.
  [[nodiscard]] Estimate static_batch(std::uint32_t batch) const;
  // So many clients that each wait for their answer: no more run at once than fit, and a token shares its step with
  // the prompts of the others.
  [[nodiscard]] Served closed_loop(std::uint32_t clients) const;
  // Tokens a second of that loop: while each client gets one answer all their prompts and an answer's steps are run.
  [[nodiscard]] Estimate closed_loop_rate(std::uint32_t clients) const;
  // Requests that arrive so many a second: as many are there as arrive while one is served. Nothing where more arrive
  // than as many as fit can serve: how long they wait depends on how long the load lasts.
  [[nodiscard]] std::optional<Served> open_loop(double arrivals) const;
  // As many as fit, while others wait.
  [[nodiscard]] Served crowded() const;
  // Tokens a second with requests waiting: as many run as fit, and each step has its share of new prompts.
  [[nodiscard]] std::optional<Estimate> saturated() const;

 private:
  [[nodiscard]] Estimate prompts(double count, double answers = 0) const;
  [[nodiscard]] Estimate beside_step(double arriving, double answers = 0) const;
  [[nodiscard]] Estimate arrival() const;
  [[nodiscard]] std::uint64_t most_at_once() const;
  [[nodiscard]] double prompts_a_pass() const;
  [[nodiscard]] double prompts_ahead(double running, double busy) const;
  [[nodiscard]] Served mixed(double running) const;
  [[nodiscard]] bool waves() const { return s_.engine.prompts_first && s_.equal_lengths; }
  [[nodiscard]] Served in_waves(double running) const;
  [[nodiscard]] Served under_arrivals(std::uint32_t running, double arrivals) const;

  const PublishedSetting& s_;
  CostModel cost_;
  ResidencySummary residency_;
};

}  // namespace kvroof
