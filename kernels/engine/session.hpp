// A session: prompts in, continuations out, over any back end; recorded when asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engine/backend.hpp"
#include "kernels/engine/sampler.hpp"
#include "kernels/engine/trace_recorder.hpp"
#include "sim/model/config_json.hpp"

namespace kvroof {

// Told around each call of the back end; `step` is its number in a trace. A call that fails has no end.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  virtual void begin_step(std::uint32_t step) = 0;
  virtual void end_step(const StepRecord& step) = 0;
};

struct SessionOptions {
  std::uint32_t max_new_tokens = 128;  // ≥ 1; Keyformer's T
  bool ignore_eos = false;
  // Records the log-probabilities of the prompt's tokens as well. The model then computes the logits of all of them,
  // which a run does not need; of new tokens they are always there.
  bool prompt_logprobs = false;
  Sampling sampling;
  unsigned threads = 1;  // that choose tokens of a batch from its logits
  const std::atomic<bool>* interrupted = nullptr;  // looked at between steps, and layers of a prompt; may be null
  StepWatcher* watcher = nullptr;  // may be null
  // Called for each new token as soon as it is known; may be empty.
  std::function<void(std::uint32_t sequence, std::int64_t token)> on_token;
  // Called with the logits of all tokens of each prompt, [rows, vocab] at a time, first to last; may be empty.
  std::function<void(std::uint32_t sequence, std::span<const float> logits)> on_prompt_logits;
};

enum class StopReason : std::uint8_t { kLength, kEndOfText, kContext, kInterrupted, kFailed };
std::string_view name_of(StopReason reason);  // as in TraceSequence::stop_reason

struct SequenceResult {
  std::vector<std::int64_t> ids;    // of the continuation; an end-of-text token is its last
  std::vector<float> logprobs;      // natural log-probability of each
  StopReason stop = StopReason::kLength;
};

struct SessionResult {
  std::vector<SequenceResult> sequences;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t decoded_tokens = 0;   // that passed through the model, over all sequences
  std::uint64_t decode_steps = 0;     // in which they did, together
  double prefill_seconds = 0;         // wall time of the back end's calls
  double decode_seconds = 0;
  double choose_seconds = 0;          // beside those, in which the session chose tokens of steps from logits
  ByteCounters prefill_bytes;
  ByteCounters decode_bytes;
  KvUsage last_usage;                 // after the last step, before anything is released
  bool interrupted = false;
};

// Where dynamic scaling of the rotary embedding is there for prompts beyond the model's context: all sequences of a run
// then turn by the frequencies of its longest prompt, and the context ends with what is asked for. Whether it was so.
bool stretch_context(ModelConfig& config, const std::vector<std::vector<std::int64_t>>& prompts,
                     std::uint32_t max_new_tokens);

// Refuses, as usage errors that name the prompt: an empty one, ids outside the vocabulary, more tokens than the context
// holds.
void check_prompts(const ModelConfig& config, const std::vector<std::vector<std::int64_t>>& prompts);

// Runs all prompts, which become sequences 0, 1, …: one prefill each, then decode steps of all that are not finished. A
// sequence stops at an end-of-text id (unless ignored), after max_new_tokens, when the context is full, or when
// interrupted. `recorder` may be null. An Error of the back end or the recorder is passed on; the recorder, where it
// can still be sealed, then holds the whole steps before it.
SessionResult run_session(Backend& backend, const ModelConfig& config,
                          const std::vector<std::vector<std::int64_t>>& prompts, const SessionOptions& options,
                          TraceRecorder* recorder);

}  // namespace kvroof
