#include "analysis/serving.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvroof {
namespace {

constexpr double kChunk = 8192;  // tokens of prompts in a step, where the engine states none
// Prompts that are computed before one's own, of the clients: half of the burst that begins a loop of ten rounds.
constexpr double kPromptsAheadShare = 0.05;
constexpr double kStepsUnsure = 0.05;  // so far a mean step may be off where Little's law is taken for what is left
constexpr double kInMostSteps = 0.5;                         // prompts a step
constexpr double kQueueSpread = 0.3, kArrivalSpread = 0.3;  // judgement, as of all constants of that kind

// Times one after the other. Their errors come from the same constants, so the ends add up.
Estimate sum(const Estimate& a, const Estimate& b) {
  const double wide_a = a.high80 - a.value, wide_b = b.high80 - b.value;
  const double policies = wide_a * std::sqrt(a.unmeasured) + wide_b * std::sqrt(b.unmeasured);
  const double unmeasured = policies > 0 ? std::pow(policies / (wide_a + wide_b), 2) : 0;
  return {a.value + b.value,   a.low80 + b.low80,
          a.high80 + b.high80, a.low95 + b.low95,
          a.high95 + b.high95, a.value > b.value ? a.dominated_by : b.dominated_by,
          a.limit + b.limit,   unmeasured};
}
Estimate exactly(double seconds) { return {seconds, seconds, seconds, seconds, seconds, CostTerm::kHost}; }
// As wide as where its own ends were off by that share (80 %) as well; it may be any part of what it says.
Estimate unsure(const Estimate& e, double spread) {
  const double w80 = 1 + spread, w95 = 1 + kWidth95 * spread;
  const double own = std::log(e.high80 / e.value), all = own + std::log(w80);
  return {e.value, e.low80 / w80, e.high80 * w80, e.low95 / w95, e.high95 * w95, e.dominated_by, 0,
          all > 0 ? e.unmeasured * std::pow(own / all, 2) : 0};
}

// From the first to the second, by their ratio.
Estimate between(const Estimate& first, const Estimate& second, double share) {
  const auto at = [&](double a, double b) { return a > 0 && b > 0 ? a * std::pow(b / a, share) : a + share * (b - a); };
  const Estimate& most = share < 0.5 ? first : second;
  return {at(first.value, second.value),   at(first.low80, second.low80),   at(first.high80, second.high80),
          at(first.low95, second.low95),   at(first.high95, second.high95), most.dominated_by,
          most.is_rate ? std::max(first.limit, second.limit) : std::min(first.limit, second.limit),
          most.unmeasured, most.is_rate};
}

}  // namespace

Estimate RequestTimes::whole(double output) const { return sum(first_token, scaled(token, output - 1)); }

Server::Server(CostModel cost, ResidencySummary mean, ResidencySummary half_written, RequestLengths lengths)
    : cost_(std::move(cost)),
      mean_(std::move(mean)),
      half_written_(std::move(half_written)),
      lengths_(lengths),
      groups_(cost_.deployment().data_parallel),
      steps_(1 + cost_.steps_of(lengths.output - 1.0)),
      a_step_(steps_ > 1 ? (lengths.output - 1.0) / (steps_ - 1) : 1) {}

Estimate Server::static_batch(std::uint32_t batch) const {
  const Estimate prompts = cost_.prefill(mean_, batch);
  return lengths_.output < 2 ? prompts : sum(prompts, scaled(step_of(batch), steps_ - 1));
}

RequestTimes Server::closed_loop(std::uint32_t clients) const {
  const double share = share_in_chunks(std::min<double>(clients, static_cast<double>(most_at_once())));
  if (share <= 0) return loop(clients, false);
  const RequestTimes whole = loop(clients, false), pieces = loop(clients, true);
  return {between(whole.first_token, pieces.first_token, share), between(whole.token, pieces.token, share),
          between(whole.most_tokens, pieces.most_tokens, share)};
}

RequestTimes Server::loop(std::uint32_t clients, bool in_chunks) const {
  const double running = std::min<double>(clients, static_cast<double>(most_at_once()));
  RequestTimes served = waves() ? in_waves(running) : in_chunks ? between_chunks(running) : mixed(running);
  served.first_token = sum(served.first_token, arrival());
  if (clients > running) {  // the others wait for a place
    const double turns = clients / running - 1;
    served.first_token = sum(served.first_token, scaled(served.whole(lengths_.output), turns));
  }
  // Clients are as many as answers begin while one is waited for (Little's law). Where answers are so short that
  // prompts are most of the work, what is left of that beside an answer's steps is spent before its first token; of
  // long ones the steps may be off by more than that. Prompts that go first hold up all tokens alike; where prompts
  // come in pieces times fill the turn by themselves.
  const double each = clients * lengths_.output / loop_rate(clients, in_chunks).value;
  const double steps = (lengths_.output - 1) * served.token.value;
  if (!in_chunks && !cost_.engine().prompts_first && served.first_token.value + (1 - kStepsUnsure) * steps > each) {
    served.token = held_up_less(served.token, running);
  }
  const double making = (lengths_.output - 1) * served.token.value;
  const double first = served.first_token.value;
  if (const double waits = each - (1 + kStepsUnsure) * making - first; waits > 0) {
    served.first_token = sum(served.first_token, unsure(exactly(waits), kQueueSpread));
  } else if (!waves()) {
    const double own = cost_.prefill(mean_, 1).value + arrival().value;
    const double left = std::max(each - (1 - kStepsUnsure) * making, own);
    // Of prompts in pieces the burst that begins the loop is beside a turn, not in it.
    const double beside = in_chunks ? std::clamp(steps_of_a_prompt() - 1, 0.0, 1.0) : 0;
    if (left < first) served.first_token = scaled(served.first_token, beside + (1 - beside) * left / first);
  }
  // Waiting for steps is no bound, waiting for a place is.
  const double own = cost_.prefill(mean_, 1).limit, answer = (lengths_.output - 1) * served.token.limit;
  served.first_token.limit = own + (clients > running ? (clients / running - 1) * (own + answer) : 0);
  if (served.most_tokens.value > served.token.value) served.most_tokens = served.token;
  return served;
}

// Where prompts are most of the work a token is not held up by as many others' as there are: they fall between one's
// tokens while these are made, not while one's own prompt is waited for. With a prompt of p seconds and s steps of t,
// n clients ask anew in n · p + s · t; tokens that take D meet (n − 1) · D / (n · p + s · t) prompts, so that
// D = (s − 1) · t + that many times p.
Estimate Server::held_up_less(const Estimate& token, double running) const {
  const double step = step_of(running).value;
  const double own = cost_.prefill(mean_, 1).value;
  const double turn = running * lengths_.output / loop_rate(static_cast<std::uint32_t>(running), false).value;
  const double making = (steps_ - 1) * step * turn / (own + steps_ * step);
  const double before = (lengths_.output - 1.0) * token.value;
  return before > 0 && making < before ? scaled(token, making / before) : token;
}

// Prompts longer than what a step takes of them, whose steps answers go on in: a server of prompts, one after the
// other, and clients that come back after an answer's steps. By mean value analysis (Reiser and Lavenberg 1980), of
// service that always takes as long; in steps, since answers grow by them however long they are.
double Server::steps_to_first(double clients) const {
  const double chunks = steps_of_a_prompt();
  const double answer = steps_ - 1;
  double there = chunks, waiting = 0, busy = 0;
  for (double n = 1; n <= clients; ++n) {
    there = std::max(chunks * (1 + waiting - busy / 2), n * chunks - answer);  // it is never more than busy
    const double turn = answer + there;
    waiting = n * there / turn;
    busy = n * chunks / turn;
  }
  return there;
}

// What is left of a client's turn is its answer's.
RequestTimes Server::between_chunks(double running) const {
  const double passing = in_a_pass(running), clients = clients_of_a_group(running);
  const Estimate alone = step_of(running), prompt = cost_.prefill(mean_, 1);
  const double steps = steps_to_first(clients), burst = std::min(clients - 1, kPromptsAheadShare * clients);
  RequestTimes served;
  const Estimate waited = sum(scaled(prompt, steps / steps_of_a_prompt() - 1), scaled(alone, steps));
  const Estimate mean = sum(alone, beside_step(passing - 1, alone.value));
  const double turn = running * lengths_.output / loop_rate(static_cast<std::uint32_t>(running), true).value;
  const double making = turn - prompt.value - waited.value - arrival().value;
  const double least = alone.value * (steps_ - 1);
  // The burst that begins the loop is no part of a turn.
  served.first_token = sum(prompt, unsure(sum(waited, scaled(prompt, burst)), kQueueSpread));
  served.token = scaled(mean, std::max(making, least) / (steps_ - 1) / mean.value / a_step_);
  served.most_tokens = scaled((passing - 1) * steps_of_a_prompt() / steps_ < kInMostSteps ? alone : mean, 1 / a_step_);
  return served;
}

// Answers end at any time, so each token has its share of the others' prompts.
RequestTimes Server::mixed(double running) const {
  const double passing = in_a_pass(running);
  const auto step = [&](double beside) { return step_of(running, beside); };
  const Estimate alone = step(0);
  const double answers = cost_.engine().prompts_first ? 0 : alone.value;  // seconds of a pass beside its prompts
  const Estimate beside = beside_step(passing - 1, answers);
  const Estimate mean = sum(step(beside.value), beside);
  RequestTimes served;
  served.token = scaled(mean, 1 / a_step_);
  served.most_tokens = scaled((passing - 1) / steps_ < kInMostSteps ? alone : mean, 1 / a_step_);
  const double ahead = prompts_ahead(passing, beside.value / mean.value);
  const Estimate waiting = sum(unsure(prompts(ahead), kQueueSpread), scaled(alone, cost_.engine().waited_steps));
  served.first_token = sum(cost_.prefill(mean_, 1), running > 1 ? waiting : scaled(alone, 0));
  return served;
}

// Prompts that are computed before one's own: of the burst that begins the loop, and those that ended together with it
// or, where lengths are drawn, what a request finds that comes at any time to a server which prompts keep busy for that
// share of its time (M/D/1), under engines that do not compute all prompts that wait first. A faster step brings
// clients back sooner, so that more of them wait.
double Server::prompts_ahead(double running, double busy) const {
  const bool groups = lengths_.equal || cost_.engine().prompts_first;
  const double queue = groups ? cost_.engine().prompts_ahead : busy / 2 / (1 - busy);
  return std::min(running - 1, queue + kPromptsAheadShare * running);
}

// Where answers of one length wait for all prompts, they end in the same step, so that all clients ask again at once:
// on average half of the passes over prompts are before one's own, the others before one's second token.
RequestTimes Server::in_waves(double running) const {
  const double passes = std::max(1.0, running / prompts_a_pass());
  const Estimate all = prompts(running);
  const Estimate step = step_of(running);
  const double steps = std::max(steps_ - 1, 1.0);
  RequestTimes served;
  served.first_token = scaled(all, (passes + 1) / (2 * passes));
  served.token = scaled(sum(step, scaled(all, (passes - 1) / (2 * passes) / steps)), 1 / a_step_);
  served.most_tokens = scaled(step, 1 / a_step_);
  return served;
}

Estimate Server::closed_loop_rate(std::uint32_t clients) const {
  const double share = share_in_chunks(std::min<double>(clients, static_cast<double>(most_at_once())));
  const Estimate whole = loop_rate(clients, false);
  return share > 0 ? between(whole, loop_rate(clients, true), share) : whole;
}

Estimate Server::loop_rate(std::uint32_t clients, bool in_chunks) const {
  const auto running = static_cast<double>(std::min<std::uint64_t>(clients, most_at_once()));
  const double tokens = running * lengths_.output;
  const double passing = in_a_pass(running);
  const Estimate others = waves() ? prompts(running) : scaled(beside_step(passing), steps_);
  const Estimate step = step_of(running);
  const double waited = in_chunks ? steps_to_first(clients_of_a_group(running)) : 0;  // with steps of answers in them
  const Estimate busy = sum(others, scaled(step, steps_ - 1 + waited));
  // A place is empty while its client's next request is on its way, unless another one waits for it.
  return throughput(clients > running ? busy : sum(busy, arrival()), tokens);
}

std::optional<RequestTimes> Server::open_loop(double arrivals) const {
  const auto most = static_cast<double>(most_at_once());
  std::uint32_t running = 1;
  RequestTimes served = under_arrivals(running, arrivals);
  for (int round = 0; round < 30; ++round) {
    const double there = arrivals * served.whole(lengths_.output).value;
    if (there > most && running >= most) return std::nullopt;
    const auto next = static_cast<std::uint32_t>(std::clamp(there, 1.0, most));
    if (next == running) break;
    running = next;
    served = under_arrivals(running, arrivals);
  }
  return served;
}

RequestTimes Server::crowded() const {
  return closed_loop(static_cast<std::uint32_t>(std::min<std::uint64_t>(most_at_once(), 4096)));
}

std::optional<Estimate> Server::saturated() const {
  const std::uint64_t batch = most_at_once();
  if (batch == 0) return std::nullopt;
  const auto running = static_cast<double>(batch);
  const double passing = in_a_pass(running);
  const Estimate beside = beside_step(passing);
  return throughput(sum(step_of(running, beside.value), beside), running * a_step_);
}

Estimate Server::step_of(double running, double beside) const {
  return cost_.step(mean_, cost_.deployment().pass_of(static_cast<std::uint64_t>(in_a_pass(running)), beside));
}

double Server::in_a_pass(double running) const {
  const auto sequences = static_cast<std::uint64_t>(std::ceil(running));
  return std::max(1.0, static_cast<double>(cost_.in_a_pass(sequences)));
}

// Answers whose ages differ are half written on average, where memory comes as they grow.
std::uint64_t Server::most_at_once() const {
  if (!cost_.engine().admits_by_prompt || waves()) return cost_.memory().largest_batch(mean_);
  return cost_.memory().largest_batch(half_written_);
}

double Server::steps_of_a_prompt() const { return lengths_.input / cost_.engine().step_room(kChunk); }

// How far the loop is one of prompts in pieces, whose steps answers go on in, and not one of prompts computed whole:
// the more, the longer a prompt is beside what a step takes of it; and where prompts alone keep the server busy. What
// lies between was read off loops simulated step by step (docs/method.md).
double Server::share_in_chunks(double running) const {
  constexpr double kWhole = 0.25, kHalf = 0.3;
  if (cost_.engine().prompts_first || steps_ <= 1 || running <= 1) return 0;
  const double pieces = steps_of_a_prompt(), beyond = std::max(0.0, pieces - kWhole), squared = beyond * beyond;
  const double busy = std::min(1.0, clients_of_a_group(running) * pieces / (steps_ - 1));
  return std::max(squared / (squared + kHalf), std::pow(busy, 6));
}

double Server::clients_of_a_group(double running) const {
  return std::max(1.0, in_a_pass(running) / cost_.deployment().data_parallel);
}

// As many as a chunk holds; groups of devices with sequences of their own have a chunk each.
double Server::prompts_a_pass() const {
  const double of_a_group = std::floor(cost_.engine().step_room(kChunk) / lengths_.input);
  return cost_.deployment().data_parallel * std::max(1.0, of_a_group);
}

// So many prompts, computed together as far as a chunk holds them. Each comes to a group of devices by chance, and all
// wait for the group that has most, which passes as many at once as its chunk holds.
Estimate Server::prompts(double count, double answers) const {
  const std::uint32_t groups = cost_.deployment().data_parallel;
  const double chunk = prompts_a_pass() / groups;
  const auto of = [&](double together) {
    const double fullest = groups_.expected(static_cast<std::uint32_t>(together));
    const double passed = std::min(fullest, chunk), least = std::floor(passed), more = passed - least;
    const auto pass = [&](double own) {
      const double fill = together * passed / fullest / (own * groups);
      return cost_.prefill(mean_, Pass{static_cast<std::uint64_t>(own), fill, answers});
    };
    const Estimate one = more > 0 ? sum(scaled(pass(least), 1 - more), scaled(pass(least + 1), more)) : pass(least);
    return scaled(one, fullest / passed);
  };
  if (count <= 1) return scaled(of(1), count);
  const double whole = std::floor(count), share = count - whole;
  return share > 0 ? sum(scaled(of(whole), 1 - share), scaled(of(whole + 1), share)) : of(whole);
}

// The prompts that come to a step of so many clients, each of which asks once in the steps of an answer: those whose
// places become free in the same step are computed together. Answers of one length that began in a pass end in one
// step, and so their clients' next prompts fill passes again.
Estimate Server::beside_step(double clients, double answers) const {
  if (clients <= 0) return scaled(prompts(1, answers), 0);
  if (lengths_.equal) return scaled(prompts(clients, answers), 1 / steps_);
  const double any = 1 - std::pow(1 - 1 / steps_, clients);  // of the steps
  return scaled(prompts(clients / steps_ / any, answers), any);
}

RequestTimes Server::under_arrivals(std::uint32_t running, double arrivals) const {
  const Estimate prompt = cost_.prefill(mean_, 1);
  const double busy = std::min(0.9, arrivals * prompt.value);  // share of time that goes to prompts
  const Estimate step = step_of(running);
  const Estimate first = sum(scaled(prompt, 1 / (1 - busy)), scaled(step, 0.5));
  const Estimate mean = scaled(step, 1 / (1 - busy));
  const Estimate token = scaled(mean, 1 / a_step_);
  return {sum(first, arrival()), token, scaled(arrivals * mean.value < kInMostSteps ? step : mean, 1 / a_step_)};
}

// Until a request has its place in a batch.
Estimate Server::arrival() const {
  const double seconds = cost_.engine().arrival_us * 1e-6;
  return unsure(exactly(seconds), kArrivalSpread);
}

}  // namespace kvroof
