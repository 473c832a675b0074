#include "sim/serving/replica.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/core/error.hpp"

namespace kvroof {

// Where an engine states nothing, as many tokens as the analytic model of loops takes (docs/method.md).
constexpr double kStepTokens = 8192;

SchedulerLimits scheduler_limits(const EngineProfile& engine) {
  SchedulerLimits limits;
  limits.sequences = static_cast<std::uint64_t>(std::min(engine.largest_batch, 1e9));
  limits.step_tokens = static_cast<std::uint32_t>(engine.step_room(kStepTokens));
  limits.prompts_first = engine.prompts_first;
  limits.admits_by_prompt = engine.admits_by_prompt;
  limits.one_ahead = engine.settles_ahead;
  limits.arrival_seconds = engine.arrival_us * 1e-6;
  return limits;
}

Replica::Replica(const ServingCosts& costs, const SchedulerLimits& limits,
                 const std::optional<PrefixCacheSetup>& prefixes, std::vector<ServedRequest>& requests, TokenGap on_gap)
    : costs_(costs), limits_(limits), requests_(requests), on_gap_(std::move(on_gap)) {
  if (prefixes) prefixes_.emplace(*prefixes);
}

void Replica::arrive(std::size_t request) {
  Sequence sequence;
  const Request& asked = requests_[request].request;
  sequence.request = request;
  sequence.computed = asked.cached;
  sequence.to_compute = asked.prompt;
  sequence.cache = cache_of(sequence);
  sequence.most_cache = most_cache_of(asked);
  sequence.corrected = correction(asked);
  queue_.push_back(sequence);
}

Replica::Sequence Replica::sequence_with_prompt(std::size_t request) const {
  const ServedRequest& served = requests_[request];
  Sequence sequence;
  sequence.request = request;
  sequence.generated = 1;
  sequence.computed = sequence.to_compute = served.request.prompt;
  sequence.cache = cache_of(sequence);
  sequence.most_cache = most_cache_of(served.request);
  sequence.last_token = served.first_token;
  return sequence;
}

bool Replica::has_place(std::size_t request) const {
  if (!queue_.empty() || running_.size() + expected_ >= limits_.sequences) return false;
  if (running_.empty() && held_ == 0) return true;
  double taken = held_bytes_ + reserved(sequence_with_prompt(request));
  for (const Sequence& sequence : running_) taken += reserved(sequence);
  return taken <= costs_.cache_capacity();
}

void Replica::expect(std::size_t request) {
  held_bytes_ += reserved(sequence_with_prompt(request));
  ++held_;
  ++expected_;
}

void Replica::join(std::size_t request, double now) {
  joining_.push_back(sequence_with_prompt(request));
  joining_.back().joined = now;
}

void Replica::release(std::size_t request, double now) {
  const auto left = std::ranges::find(leaving_, request, &Sequence::request);
  give_up(own(*left, left->cache, left->held));
  let_go(*left);
  leaving_.erase(left);
  shrink_idle();
  released_ = now;
}

void Replica::stay(const Sequence& sequence) {
  leaving_.push_back(sequence);
  held_bytes_ += own(sequence, sequence.cache, sequence.held);
  ++held_;
}

void Replica::give_up(double held_bytes) {
  held_bytes_ = --held_ > 0 ? held_bytes_ - held_bytes : 0;
  full_ = false;
}

std::optional<double> Replica::next_taken() const {
  if (!joining_.empty()) return std::max(joining_.front().joined, released_);
  if (queue_.empty() || full_) return std::nullopt;
  return std::max(queued_at(queue_.front()), released_);
}

std::uint64_t Replica::size_of(std::uint32_t batch) const {
  if (limits_.batches == 1) return running_.size();
  return static_cast<std::uint64_t>(std::ranges::count(running_, batch, &Sequence::batch));
}

bool Replica::runs(std::uint32_t batch) const { return size_of(batch) > 0; }

Replica::SettledStep Replica::settle_step(std::uint32_t batch, double now, double seen_until) {
  take_joined(batch, seen_until);
  admit(batch, seen_until);
  make_room(batch);
  if (runs(batch)) {
    settle(batch, now);
    return {true, settled_.sequences.size(), settled_.prompt_tokens};
  }
  full_ = full_ || (!queue_.empty() && queued_at(queue_.front()) <= now);
  return {};
}

double Replica::cache_of(const Sequence& sequence) const {
  const Request& request = requests_[sequence.request].request;
  return costs_.cache_bytes({request.prompt, std::min(sequence.generated + 1, request.output)});
}

// Looked for at eight ages: policies drop many tokens at once, so that the end need not be the largest.
double Replica::most_cache_of(const Request& request) const {
  double most = 0;
  for (std::uint64_t part = 1; part <= 8; ++part) {
    const auto generated = static_cast<std::uint32_t>(request.output * part / 8);
    most = std::max(most, costs_.cache_bytes({request.prompt, std::max(generated, 1U)}));
  }
  return most;
}

std::uint64_t Replica::prompt_tokens(std::uint32_t batch) const {
  const auto decodes = [&](const Sequence& s) { return s.batch == batch && s.decodes(); };
  const auto decoding = static_cast<std::uint64_t>(std::count_if(running_.begin(), running_.end(), decodes)) *
                        (1 + limits_.drafts.tokens);
  const std::uint64_t most = std::max<std::uint64_t>(limits_.step_tokens, 1);
  if (limits_.prompts_first) return most;
  return most > decoding ? most - decoding : 0;
}

// Sequences whose caches were there by then run from now on, in the places that they have.
void Replica::take_joined(std::uint32_t batch, double seen_until) {
  const auto is_later = [&](const Sequence& s) { return s.joined > seen_until; };
  const auto later = std::find_if(joining_.begin(), joining_.end(), is_later);
  for (auto s = joining_.begin(); s != later; ++s) {
    give_up(reserved(*s));
    --expected_;
    running_.push_back(*s);
    running_.back().batch = batch;
  }
  joining_.erase(joining_.begin(), later);
}

double Replica::taken_bytes() const {
  double taken = held_bytes_ + (prefixes_ ? prefixes_->held_bytes() : 0);
  for (const Sequence& sequence : running_) taken += own(sequence, reserved(sequence), sequence.held);
  return taken;
}

// Of those who run, and of those who were in the queue by then as far as there is room for them.
std::uint64_t Replica::part_of_a_batch(double seen_until) const {
  if (limits_.batches == 1) return limits_.sequences;
  std::uint64_t sequences = running_.size();
  double taken = taken_bytes();
  for (const Sequence& next : queue_) {
    if (sequences >= limits_.sequences || queued_at(next) > seen_until) break;
    const PrefixBlock found = prefixes_ ? there(next) : kNoPrefix;
    taken += own(next, reserved(next), found) + (prefixes_ ? prefixes_->newly_held_bytes(found) : 0);
    if (taken > costs_.cache_capacity() && sequences > 0) break;
    ++sequences;
  }
  return (sequences + limits_.batches - 1) / limits_.batches;
}

// Gives places to requests that were in the queue by then, as far as there are any and the next step of the batch has
// tokens left.
void Replica::admit(std::uint32_t batch, double seen_until) {
  if (queue_.empty()) return;
  double taken = taken_bytes();
  std::uint64_t asked = 0;  // tokens of prompts
  for (const Sequence& sequence : running_) {
    if (sequence.batch == batch) asked += sequence.to_compute - sequence.computed;
  }
  const std::uint64_t tokens = prompt_tokens(batch), part = part_of_a_batch(seen_until);
  std::uint64_t size = size_of(batch);
  while (!queue_.empty() && running_.size() + expected_ < limits_.sequences && asked < tokens && size < part) {
    Sequence& next = queue_.front();
    if (queued_at(next) > seen_until) return;
    const PrefixBlock found = prefixes_ ? there(next) : kNoPrefix;
    taken += own(next, reserved(next), found) + (prefixes_ ? prefixes_->newly_held_bytes(found) : 0);
    // One sequence alone always has a place: whoever asks has checked that each fits.
    full_ = taken > costs_.cache_capacity() && running_.empty() && held_ > 0;
    if (full_ || (taken > costs_.cache_capacity() && !running_.empty())) return;
    find_prefix(next);
    asked += next.to_compute - next.computed;
    next.batch = batch;
    running_.push_back(next);
    ++size;
    queue_.pop_front();
    shrink_idle();
  }
}

// The newest of the batch lose their places until the others' caches fit, beside those that must stay.
void Replica::make_room(std::uint32_t batch) {
  const std::size_t least = held_ > 0 ? 0 : 1;
  for (cache_bytes_ = caches(); cache_bytes_ > costs_.cache_capacity() && running_.size() > least;
       cache_bytes_ = caches()) {
    const auto newest = std::find_if(running_.rbegin(), running_.rend(),
                                     [&](const Sequence& s) { return s.batch == batch; });
    if (newest == running_.rend()) return;
    Sequence lost = *newest;
    running_.erase(std::next(newest).base());
    let_go(lost);
    ServedRequest& served = requests_[lost.request];
    if (served.placed >= 0) ++served.preemptions;
    lost.to_compute = served.request.prompt + lost.generated;
    lost.computed = served.request.cached;
    lost.begun = false;
    queue_.push_front(lost);
    full_ = running_.empty();  // whatever a sum of the same bytes in another order would say
  }
}

// Parts of prompts in the step, oldest places first.
void Replica::settle_prompts(std::uint32_t batch) {
  std::uint64_t left = prompt_tokens(batch);
  for (Sequence& sequence : running_) {
    if (sequence.batch != batch) continue;
    if (!sequence.begun) find_prefix(sequence);  // what those before it compute in this step is there as well
    sequence.part = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(left, sequence.to_compute - sequence.computed));
    left -= sequence.part;
    if (sequence.part == 0) continue;
    sequence.begun = true;
    hold_computed(sequence, sequence.computed + sequence.part);
  }
}

void Replica::settle(std::uint32_t batch, double now) {
  const auto prompt_here = [&](const Sequence& s) { return s.batch == batch && !s.decodes(); };
  const bool only_prompts = limits_.prompts_first && std::ranges::any_of(running_, prompt_here);
  settle_prompts(batch);
  settled_.sequences.clear();
  settled_.prompts.clear();
  settled_.prompt_tokens = 0;
  for (Sequence& s : running_) {
    if (s.batch != batch) continue;
    s.waits = only_prompts && s.decodes();
    ServedRequest& served = requests_[s.request];
    if (s.part > 0 && served.placed < 0) {
      served.placed = now;
      served.cached = s.computed;
    }
    if (s.part > 0) settled_.prompts.push_back({s.computed, s.computed + s.part});
    if (s.decodes() && !s.waits) settled_.sequences.push_back({served.request.prompt, s.generated});
    settled_.prompt_tokens += s.part;
  }
  settled_.prefix_seconds = settle_prefixes();
}

double Replica::settled_seconds(const SettledStep& all, std::size_t groups) const {
  const auto share = [&](std::uint64_t of_all, std::uint64_t own) {
    return own > 0 ? static_cast<double>(of_all) / static_cast<double>(own * groups) : 1;
  };
  const GroupFill fill{share(all.answers, settled_.sequences.size()), share(all.prompt_tokens, settled_.prompt_tokens)};
  const double seconds = costs_.step_seconds(settled_.sequences, settled_.prompts, fill) + settled_.prefix_seconds;
  check(seconds > 0 && std::isfinite(seconds), "a step takes time");
  return seconds;
}

void Replica::count_step(double seconds) {
  ++totals_.steps;
  totals_.busy_seconds += seconds;
  totals_.running_seconds += seconds * static_cast<double>(running_.size());
  totals_.cache_byte_seconds += seconds * cache_bytes_;
  totals_.most_cache_bytes = std::max(totals_.most_cache_bytes, cache_bytes_);
  count_prefixes(seconds);
}

// Of its answer, which they do not exceed.
std::uint32_t Replica::tokens_of_step(Sequence& s) {
  const std::uint32_t left = requests_[s.request].request.output - s.generated;
  const std::uint32_t made = std::min(limits_.drafts.made(s.request, s.steps++), left);
  ++totals_.answer_steps;
  totals_.answer_tokens += made;
  return made;
}

std::vector<std::size_t> Replica::end_step(std::uint32_t batch, double now) {
  std::vector<std::size_t> finished;
  full_ = false;
  for (Sequence& s : running_) {
    if (s.batch != batch) continue;
    ServedRequest& served = requests_[s.request];
    // The step that ends a prompt makes a token as well.
    const bool ends_prompt = !s.decodes() && s.computed + s.part == s.to_compute;
    const bool makes_token = s.decodes() ? !s.waits : ends_prompt;
    s.computed += std::exchange(s.part, 0);
    if (!makes_token) continue;
    if (ends_prompt) keep_prompt(s);
    s.generated += ends_prompt ? 1 : tokens_of_step(s);
    s.cache = cache_of(s);
    if (served.first_token < 0) {
      served.first_token = now;
    } else {
      on_gap_(now - s.last_token);
    }
    s.last_token = now;
    if (s.generated < served.request.output) continue;
    served.finished = now;
    finished.push_back(s.request);
    if (served.moves) {
      stay(s);
    } else {
      keep_answer(s);
      let_go(s);
    }
  }
  std::erase_if(running_, [&](const Sequence& s) { return s.generated >= requests_[s.request].request.output; });
  shrink_idle();
  return finished;
}

Replica::Totals& operator+=(Replica::Totals& all, const Replica::Totals& one) {
  all.steps += one.steps;
  all.busy_seconds += one.busy_seconds;
  all.running_seconds += one.running_seconds;
  all.cache_byte_seconds += one.cache_byte_seconds;
  all.most_running = std::max(all.most_running, one.most_running);
  all.most_cache_bytes = std::max(all.most_cache_bytes, one.most_cache_bytes);
  all.idle_byte_seconds += one.idle_byte_seconds;
  all.host_byte_seconds += one.host_byte_seconds;
  all.answer_steps += one.answer_steps;
  all.answer_tokens += one.answer_tokens;
  all.evicted_blocks += one.evicted_blocks;
  all.host_tokens_read += one.host_tokens_read;
  return all;
}

}  // namespace kvroof
