#include "kernels/engine/session.hpp"

#include <algorithm>
#include <exception>
#include <optional>

#include "kernels/engine/finite_logits.hpp"
#include "sim/core/error.hpp"
#include "sim/core/monotonic.hpp"
#include "sim/core/thread_pool.hpp"

namespace kvroof {
namespace {

// One run in progress.
class Run {
 public:
  Run(Backend& backend, const ModelConfig& config, const std::vector<std::vector<std::int64_t>>& prompts,
      const SessionOptions& options, TraceRecorder* recorder)
      : backend_(backend), config_(config), prompts_(prompts), options_(options), recorder_(recorder) {
    result_.sequences.resize(prompts.size());
  }

  SessionResult run() {
    try {
      run_steps();
    } catch (const std::exception&) {  // memory and threads may be refused as well
      if (recorder_ != nullptr) recorder_->forget_step();
      finish_rest(StopReason::kFailed);
      throw;
    }
    if (result_.interrupted) finish_rest(StopReason::kInterrupted);
    return std::move(result_);
  }

 private:
  using Token = std::optional<std::int64_t>;

  void run_steps() {
    std::vector<DecodeEntry> batch;
    for (std::uint32_t s = 0; s < prompts_.size() && !stop_asked(); ++s) {
      if (const auto token = prefill(s)) batch.push_back({s, *token});
    }
    while (!batch.empty() && !stop_asked()) batch = decode(batch);
  }

  bool stop_asked() {
    if (options_.interrupted != nullptr && options_.interrupted->load()) result_.interrupted = true;
    return result_.interrupted;
  }

  // Runs a call of the back end as one engine step; returns its seconds.
  template <class Call>
  double step(const char* phase, std::size_t sequences, ByteCounters& total, Call&& call) {
    StepRecord record;
    record.step = steps_;
    record.phase = phase;
    record.sequences = static_cast<std::uint32_t>(sequences);
    if (options_.watcher != nullptr) options_.watcher->begin_step(steps_);
    record.start_ns = monotonic_ns();
    call();
    record.end_ns = monotonic_ns();
    record.bytes = backend_.take_counters();
    if (options_.watcher != nullptr) options_.watcher->end_step(record);
    total += record.bytes;
    pending_ = record;
    return static_cast<double>(record.end_ns - record.start_ns) * 1e-9;
  }

  // What the step left in the cache, before a sequence that ends with it is released.
  void note_usage() {
    result_.last_usage = backend_.kv_usage();
    pending_.kv_resident_bytes = result_.last_usage.resident_bytes;
  }

  // A step is recorded after the tokens that came out of it.
  void end_step() {
    ++steps_;
    if (recorder_ != nullptr) recorder_->end_step(pending_);
  }

  Token prefill(std::uint32_t s) {
    const std::vector<std::int64_t>& ids = prompts_[s];
    logits_.resize(config_.shape.vocab);
    std::vector<float> logprobs{0.0F};  // nothing predicts the first token
    const LogitsSink sink = prompt_sink(s, logprobs);
    try {
      result_.prefill_seconds += step("prefill", 1, result_.prefill_bytes,
                                      [&] { backend_.prefill(s, ids, options_.max_new_tokens, logits_, sink); });
    } catch (const Interrupted&) {
      result_.interrupted = true;  // of the last prompt nobody else would ask
      backend_.take_counters();
      if (recorder_ != nullptr) recorder_->forget_step();
      return std::nullopt;
    }
    result_.prompt_tokens += ids.size();
    note_usage();
    logprobs.resize(ids.size(), kUnknownLogprob);
    if (recorder_ != nullptr) recorder_->tokens(s, 0, ids, logprobs);
    const Token next = next_token(s, choose(s, logits_));
    end_step();
    return next;
  }

  // What to do with the logits of all tokens of a prompt: empty when nobody wants them, so that they are not computed.
  LogitsSink prompt_sink(std::uint32_t s, std::vector<float>& logprobs) {
    const bool wants_logprobs = recorder_ != nullptr && options_.prompt_logprobs;
    if (!wants_logprobs && !options_.on_prompt_logits) return {};
    return [this, s, wants_logprobs, &logprobs](std::span<const float> logits) {
      if (options_.on_prompt_logits) options_.on_prompt_logits(s, logits);
      const std::vector<std::int64_t>& ids = prompts_[s];
      const std::size_t vocab = config_.shape.vocab;
      for (; wants_logprobs && !logits.empty() && logprobs.size() < ids.size(); logits = logits.subspan(vocab)) {
        logprobs.push_back(log_probability(logits.first(vocab), ids[logprobs.size()]));
      }
    };
  }

  std::vector<DecodeEntry> decode(const std::vector<DecodeEntry>& batch) {
    result_.decode_seconds += step("decode", batch.size(), result_.decode_bytes, [&] { run_batch(batch); });
    result_.decoded_tokens += batch.size();
    ++result_.decode_steps;
    note_usage();
    if (!chosen_) choose_all(batch);
    std::vector<DecodeEntry> next;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::uint32_t s = batch[i].sequence;
      if (const auto token = next_token(s, choices_[i])) next.push_back({s, *token});
    }
    end_step();
    return next;
  }

  // Leaves either what the back end chose, or logits to choose by.
  void run_batch(const std::vector<DecodeEntry>& batch) {
    choices_.resize(batch.size());
    chosen_ = options_.sampling.temperature <= 0 && backend_.decode_greedily(batch, choices_);
    if (chosen_) return;
    logits_.resize(batch.size() * config_.shape.vocab);
    backend_.decode(batch, logits_);
  }

  void choose_all(const std::vector<DecodeEntry>& batch) {
    const std::uint64_t start = monotonic_ns();
    const std::size_t vocab = config_.shape.vocab;
    // The first batch is the largest.
    if (!pool_) pool_.emplace(std::min(options_.threads, static_cast<unsigned>(batch.size())));
    pool_->parallel_for(batch.size(), [&](std::size_t i) {
      choices_[i] = choose(batch[i].sequence, std::span<const float>(logits_).subspan(i * vocab, vocab));
    });
    result_.choose_seconds += static_cast<double>(monotonic_ns() - start) * 1e-9;
  }

  [[nodiscard]] TokenChoice choose(std::uint32_t s, std::span<const float> logits) const {
    const auto made = static_cast<std::uint32_t>(result_.sequences[s].ids.size());
    const std::int64_t token = sample(logits, options_.sampling, s, made);
    return {token, log_probability(logits, token)};
  }

  // Takes the next token of a sequence; nothing when it need not be fed back because the sequence has ended.
  Token next_token(std::uint32_t s, TokenChoice choice) {
    SequenceResult& sequence = result_.sequences[s];
    const auto made = static_cast<std::uint32_t>(sequence.ids.size());
    const auto [token, logprob] = choice;
    require_finite(logprob, s, prompts_[s].size() + made);
    sequence.ids.push_back(token);
    sequence.logprobs.push_back(logprob);
    const std::size_t position = prompts_[s].size() + made;
    if (recorder_ != nullptr) {
      recorder_->tokens(s, static_cast<std::uint32_t>(position), {&token, 1}, {&logprob, 1});
    }
    if (options_.on_token) options_.on_token(s, token);
    const auto& eos = config_.options.eos_ids;
    if (!options_.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end())
      return finish(s, StopReason::kEndOfText);
    if (made + 1 >= options_.max_new_tokens) return finish(s, StopReason::kLength);
    if (position >= config_.shape.max_positions) return finish(s, StopReason::kContext);
    return token;
  }

  Token finish(std::uint32_t s, StopReason reason) {
    result_.sequences[s].stop = reason;
    finished_.push_back(s);
    if (reason != StopReason::kInterrupted && reason != StopReason::kFailed) backend_.release(s);
    if (recorder_ != nullptr) recorder_->stopped(s, name_of(reason));
    return std::nullopt;
  }

  void finish_rest(StopReason reason) {
    for (std::uint32_t s = 0; s < prompts_.size(); ++s) {
      if (std::find(finished_.begin(), finished_.end(), s) == finished_.end()) finish(s, reason);
    }
  }

  Backend& backend_;
  const ModelConfig& config_;
  const std::vector<std::vector<std::int64_t>>& prompts_;
  const SessionOptions& options_;
  TraceRecorder* recorder_;
  SessionResult result_;
  StepRecord pending_;
  std::uint32_t steps_ = 0;  // that ended
  std::vector<float> logits_;
  std::vector<TokenChoice> choices_;
  bool chosen_ = false;  // by the back end, in the last step
  std::optional<ThreadPool> pool_;
  std::vector<std::uint32_t> finished_;
};

}  // namespace

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText: return "end_of_text";
    case StopReason::kContext: return "context";
    case StopReason::kInterrupted: return "interrupted";
    case StopReason::kFailed: return "failed";
    default: return "length";
  }
}

bool stretch_context(ModelConfig& config, const std::vector<std::vector<std::int64_t>>& prompts,
                     std::uint32_t max_new_tokens) {
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const auto dynamic = [](const RotaryRule& rule) { return rule.dynamic_factor > 0; };
  auto& rules = config.options.rotary;
  if (longest <= config.shape.max_positions || std::ranges::none_of(rules, dynamic)) return false;
  for (RotaryRule& rule : rules) {
    if (dynamic(rule)) scale_dynamic(rule, static_cast<double>(longest), config.shape.max_positions);
  }
  config.shape.max_positions = static_cast<std::uint32_t>(longest) + max_new_tokens;
  return true;
}

void check_prompts(const ModelConfig& config, const std::vector<std::vector<std::int64_t>>& prompts) {
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    const auto& ids = prompts[s];
    if (ids.empty()) throw usage_error(fmt::format("prompt {} is empty; expected at least one token", s));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= config.shape.vocab) {
        throw usage_error(fmt::format("prompt {}: token {} has id {}, but the model knows ids 0 to {}", s, i, ids[i],
                                      config.shape.vocab - 1))
            .note("a tokenizer of another model gives such ids");
      }
    }
    if (ids.size() > config.shape.max_positions) {
      throw usage_error(fmt::format("prompt {} has {} tokens, but the context of the model is {}", s, ids.size(),
                                    config.shape.max_positions));
    }
  }
}

namespace {

// What a back end is given for one session, and must not know after it.
struct Lent {
  Lent(Backend& to, Recorder* recorder, const std::atomic<bool>* interrupted) : backend(to) {
    backend.set_recorder(recorder);
    backend.set_interrupt(interrupted);
  }
  ~Lent() {
    backend.set_recorder(nullptr);
    backend.set_interrupt(nullptr);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  Backend& backend;
};

}  // namespace

SessionResult run_session(Backend& backend, const ModelConfig& config,
                          const std::vector<std::vector<std::int64_t>>& prompts, const SessionOptions& options,
                          TraceRecorder* recorder) {
  check_prompts(config, prompts);
  const Lent lent(backend, recorder != nullptr && recorder->captures() ? recorder : nullptr, options.interrupted);
  return Run(backend, config, prompts, options, recorder).run();
}

}  // namespace kvroof
