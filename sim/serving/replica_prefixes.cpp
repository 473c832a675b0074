// What running sequences hold of the prefix cache.
#include <algorithm>
#include <limits>
#include <utility>

#include "sim/serving/replica.hpp"

namespace kvroof {

double Replica::correction(const Request& request) const {
  if (!prefixes_ || prefixes_->setup().copies) return 0;
  return prefixes_->bytes_of(request.prompt) - prefixes_->bytes_of(costs_.taken_for(request.prompt));
}

double Replica::unshared(const Sequence& sequence, double bytes, PrefixBlock held) const {
  if (prefixes_->setup().copies) return bytes;
  const std::uint32_t tokens =
      std::min(prefixes_->setup().tree->end(held), requests_[sequence.request].request.prompt);
  // What windows hide of a prompt is spread over its blocks: an end of it may hold less.
  return std::max(0.0, bytes + sequence.corrected - prefixes_->bytes_of(tokens));
}

double Replica::caches() const {
  double bytes = held_bytes_ + (prefixes_ ? prefixes_->held_bytes() : 0);
  for (const Sequence& sequence : running_) bytes += own(sequence, sequence.cache, sequence.held);
  return bytes;
}

std::uint32_t Replica::found(const Request& request) const {
  return prefixes_ ? std::min(prefixes_->setup().tree->end(prefixes_->find(request.prefix)), request.prompt) : 0;
}

PrefixBlock Replica::there(const Sequence& sequence) const {
  const PrefixBlock found = prefixes_->find(requests_[sequence.request].request.prefix);
  if (!prefixes_->setup().copies) return found;
  const double room = std::max(0.0, costs_.cache_capacity() - reserved(sequence));
  const double tokens = std::min(room / prefixes_->bytes_of(1), double{std::numeric_limits<std::uint32_t>::max()});
  return prefixes_->until(found, static_cast<std::uint32_t>(tokens));
}

// The last token is always computed: the answer begins with what it makes.
void Replica::find_prefix(Sequence& sequence) {
  if (!prefixes_) return;
  const Request& request = requests_[sequence.request].request;
  const PrefixBlock found = there(sequence);
  prefixes_->hold(sequence.held, found);
  sequence.held = found;
  const std::uint32_t tokens = std::min(prefixes_->setup().tree->end(found), request.prompt);
  sequence.computed = std::min(tokens, sequence.to_compute - 1);
}

void Replica::hold_computed(Sequence& sequence, std::uint32_t computed) {
  if (!prefixes_ || prefixes_->setup().copies) return;
  const Request& request = requests_[sequence.request].request;
  const PrefixBlock to = computed < request.prompt ? prefixes_->until(request.prefix, computed) : request.prefix;
  if (prefixes_->setup().tree->end(to) <= prefixes_->setup().tree->end(sequence.held)) return;
  prefixes_->hold(sequence.held, to);
  sequence.held = to;
}

void Replica::keep_prompt(Sequence& sequence) {
  if (!prefixes_ || !prefixes_->setup().copies) return;
  const PrefixBlock last = requests_[sequence.request].request.prefix;
  prefixes_->hold(sequence.held, last);
  sequence.held = last;
  let_go(sequence);
}

// Copies are of prompts: what an answer's rows were computed from was evicted in part.
void Replica::keep_answer(Sequence& sequence) {
  const PrefixBlock last = requests_[sequence.request].request.answered;
  if (!prefixes_ || prefixes_->setup().copies || last == kNoPrefix) return;
  prefixes_->hold_instead(sequence.held, last);
  sequence.held = last;
}

void Replica::let_go(Sequence& sequence) {
  if (prefixes_) prefixes_->let_go(std::exchange(sequence.held, kNoPrefix));
}

void Replica::shrink_idle() {
  if (!prefixes_ || prefixes_->setup().loses_nothing) return;
  prefixes_->shrink(std::min(prefixes_->setup().most_bytes, costs_.cache_capacity() - caches()));
  totals_.evicted_blocks = prefixes_->evicted();
}

double Replica::settle_prefixes() {
  if (!prefixes_) return 0;
  cache_bytes_ = caches();
  shrink_idle();
  return prefixes_->read_seconds();
}

void Replica::count_prefixes(double seconds) {
  if (!prefixes_) return;
  totals_.idle_byte_seconds += seconds * prefixes_->idle_bytes();
  totals_.host_byte_seconds += seconds * prefixes_->host_bytes();
  totals_.host_tokens_read = prefixes_->host_tokens_read();
}

}  // namespace kvroof
