#include "kernels/engine/teacher_forcing.hpp"

#include "kernels/engine/finite_logits.hpp"
#include "kernels/engine/sampler.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

// One batch in progress.
class Forced {
 public:
  Forced(Backend& backend, std::uint32_t vocab, std::span<const KnownSequence> batch, std::uint32_t first_sequence)
      : backend_(backend), vocab_(vocab), batch_(batch), first_(first_sequence), forced_(batch.size()) {}

  // Returns the number of tokens that were counted.
  std::size_t prefill() {
    for (std::uint32_t s = 0; s < batch_.size(); ++s) {
      const KnownSequence& known = batch_[s];
      check(known.prompt >= 1 && known.prompt < known.ids.size(), "a known sequence has a prompt and tokens after it");
      logits_.resize(vocab_);
      backend_.prefill(first_ + s, known.ids.first(known.prompt), known.requested_new_tokens, logits_, {});
      count(s, logits_);
    }
    return batch_.size();
  }

  // Feeds the token counted last of each sequence that has another one; 0 when none has.
  std::size_t step() {
    entries_.clear();
    for (std::uint32_t s = 0; s < batch_.size(); ++s) {
      const std::size_t last = batch_[s].prompt + forced_[s].logprobs.size() - 1;
      if (last + 1 < batch_[s].ids.size()) entries_.push_back({first_ + s, batch_[s].ids[last]});
    }
    if (entries_.empty()) return 0;
    logits_.resize(entries_.size() * vocab_);
    backend_.decode(entries_, logits_);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      count(entries_[i].sequence - first_, std::span<const float>(logits_).subspan(i * vocab_, vocab_));
    }
    return entries_.size();
  }

  std::vector<ForcedTokens> take() { return std::move(forced_); }

 private:
  // The next known token of a sequence, from the logits before it.
  void count(std::uint32_t s, std::span<const float> logits) {
    const std::size_t position = batch_[s].prompt + forced_[s].logprobs.size();
    const std::int64_t id = batch_[s].ids[position];
    const float logprob = log_probability(logits, id);
    require_finite(logprob, first_ + s, position);
    forced_[s].logprobs.push_back(logprob);
    forced_[s].greedy.push_back(sample(logits, {}, first_ + s, 0) == id);
    if (position + 1 == batch_[s].ids.size()) backend_.release(first_ + s);
  }

  Backend& backend_;
  std::size_t vocab_;
  std::span<const KnownSequence> batch_;
  std::uint32_t first_;
  std::vector<ForcedTokens> forced_;
  std::vector<DecodeEntry> entries_;
  std::vector<float> logits_;
};

}  // namespace

std::vector<ForcedTokens> force_tokens(Backend& backend, std::uint32_t vocab, std::span<const KnownSequence> batch,
                                       std::uint32_t first_sequence,
                                       const std::function<void(std::size_t tokens)>& on_step) {
  Forced forced(backend, vocab, batch, first_sequence);
  for (std::size_t tokens = forced.prefill(); tokens > 0; tokens = forced.step()) {
    if (on_step) on_step(tokens);
  }
  return forced.take();
}

}  // namespace kvroof
