#include "kernels/engine/questions.hpp"

#include <algorithm>

#include "kernels/engine/finite_logits.hpp"
#include "kernels/engine/sampler.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

// One batch in progress.
class Asking {
 public:
  Asking(Backend& backend, const ModelConfig& config, std::span<const AskedPrompt> batch,
         std::uint32_t max_new_tokens, std::uint32_t first_sequence, const std::function<void()>& on_token)
      : backend_(backend), config_(config), batch_(batch), max_new_tokens_(max_new_tokens),
        first_(first_sequence), on_token_(on_token), states_(batch.size()) {
    for (const AskedPrompt& asked : batch) answers_.emplace_back(asked.questions.size());
  }

  std::vector<std::vector<TokenList>> run() {
    for (std::uint32_t s = 0; s < batch_.size(); ++s) prefill(s);
    while (step()) {
    }
    return std::move(answers_);
  }

 private:
  struct State {
    std::size_t question = 0;  // the one that is fed or answered
    std::size_t fed = 0;       // tokens of it
    std::size_t position = 0;  // tokens that passed through the model
    std::int64_t next = 0;
    bool over = false;
  };

  void prefill(std::uint32_t s) {
    const AskedPrompt& asked = batch_[s];
    check(!asked.ids.empty() && !asked.questions.empty(), "an asked prompt has tokens and a question");
    std::size_t behind = asked.questions.size() * max_new_tokens_;
    for (const TokenList& question : asked.questions) behind += question.size();
    check(std::ranges::count(std::span(asked.questions).subspan(1), 0U, &TokenList::size) == 0,
          "a question behind an answer has tokens");
    logits_.resize(config_.shape.vocab);
    backend_.prefill(first_ + s, asked.ids, static_cast<std::uint32_t>(behind), logits_, {});
    states_[s].position = asked.ids.size();
    go_on(s, greedy(s, logits_));
  }

  // Whether any sequence had a token to feed.
  bool step() {
    entries_.clear();
    for (std::uint32_t s = 0; s < batch_.size(); ++s) {
      if (!states_[s].over) entries_.push_back({first_ + s, states_[s].next});
    }
    if (entries_.empty()) return false;
    choices_.resize(entries_.size());
    if (!backend_.decode_greedily(entries_, choices_)) choose();
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const std::uint32_t s = entries_[i].sequence - first_;
      ++states_[s].position;
      go_on(s, choices_[i]);
    }
    return true;
  }

  void choose() {
    const std::size_t vocab = config_.shape.vocab;
    logits_.resize(entries_.size() * vocab);
    backend_.decode(entries_, logits_);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      choices_[i] = greedy(entries_[i].sequence, std::span<const float>(logits_).subspan(i * vocab, vocab));
    }
  }

  static TokenChoice greedy(std::uint32_t sequence, std::span<const float> logits) {
    const std::int64_t token = sample(logits, {}, sequence, 0);
    return {token, log_probability(logits, token)};
  }

  // After a token has passed through the model, which would go on with `choice`.
  void go_on(std::uint32_t s, const TokenChoice& choice) {
    State& state = states_[s];
    require_finite(choice.logprob, first_ + s, state.position);
    const TokenList& question = batch_[s].questions[state.question];
    if (state.fed < question.size()) {
      feed(s, question[state.fed++]);
      return;
    }
    TokenList& answer = answers_[s][state.question];
    answer.push_back(choice.token);
    if (on_token_) on_token_();
    const auto& eos = config_.options.eos_ids;
    const bool ends = std::ranges::find(eos, choice.token) != eos.end();
    if (!ends && answer.size() < max_new_tokens_) return feed(s, choice.token);
    state.fed = 0;
    if (++state.question == batch_[s].questions.size()) return end(s);
    // The last token of an answer has not passed through the model yet; an end of text is not to.
    feed(s, ends ? batch_[s].questions[state.question][state.fed++] : choice.token);
  }

  void feed(std::uint32_t s, std::int64_t token) {
    if (states_[s].position >= config_.shape.max_positions) return end(s);
    states_[s].next = token;
  }

  void end(std::uint32_t s) {
    states_[s].over = true;
    backend_.release(first_ + s);
  }

  Backend& backend_;
  const ModelConfig& config_;
  std::span<const AskedPrompt> batch_;
  std::uint32_t max_new_tokens_;
  std::uint32_t first_;
  const std::function<void()>& on_token_;
  std::vector<State> states_;
  std::vector<std::vector<TokenList>> answers_;
  std::vector<DecodeEntry> entries_;
  std::vector<TokenChoice> choices_;
  std::vector<float> logits_;
};

}  // namespace

std::vector<std::vector<TokenList>> answer_questions(Backend& backend, const ModelConfig& config,
                                                     std::span<const AskedPrompt> batch, std::uint32_t max_new_tokens,
                                                     std::uint32_t first_sequence,
                                                     const std::function<void()>& on_token) {
  return Asking(backend, config, batch, max_new_tokens, first_sequence, on_token).run();
}

}  // namespace kvroof
