// The model repeats a prompt that it has in its cache, part after part, and what the repetition pays attention to
// scores the prompt's tokens: KVzip (Kim et al. 2025, arXiv:2505.23416), as kvpress' KVzipPress does it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/engine/backend.hpp"
#include "kernels/engine/model.hpp"
#include "sim/core/thread_pool.hpp"
#include "sim/policy/token_scores.hpp"

namespace kvroof {

// Ids of what stands between a prompt and its repetition: before the first part; before each other one, followed by the
// last kShownBefore tokens of the part before it; and behind either.
struct RepetitionRequest {
  static constexpr std::size_t kShownBefore = 8;
  std::vector<std::int64_t> first, again, suffix;
};

// Tokens [from, to) of a prompt, and what the model reads behind the whole prompt to repeat them.
struct RepeatedPart {
  std::uint32_t from = 0, to = 0;
  std::vector<std::int64_t> ids;
};

// Parts of `tokens` tokens at most, at least one.
std::vector<RepeatedPart> repeated_parts(std::span<const std::int64_t> prompt, const RepetitionRequest& request,
                                         std::uint32_t tokens);

// What each token of the part is worth in each KV head of each layer, [layers, KV heads, to − from]: the largest weight
// that any row of the repetition, in any query head of the group, pays it in a softmax over the part, the part's own
// repetition so far, and the first four tokens of the prompt, as far as they lie before the part. `full` runs the model
// under full attention with a cache of type `kv`, and keeps nothing of it. Throws Interrupted as Backend::prefill does.
std::vector<float> repetition_scores(Backend& full, DType kv, const Model& model, std::span<const std::int64_t> prompt,
                                     const RepeatedPart& part, ThreadPool& threads);

// Runs a policy that has the model repeat each prompt: before the prompt itself is computed, passes over prompt and
// repetition of `full` give its scores, which the policy of `inner` finds in `scores`; not where the budget keeps all
// of it, unless somebody wants to see them. Bytes are those of `inner`, peaks of memory those of both.
class RepeatingBackend final : public Backend {
 public:
  struct Parts {
    std::unique_ptr<Backend> full;
    DType kv = DType::kF32;  // of its cache
    std::unique_ptr<Backend> inner;
    Budget budget;           // of its policy
    std::shared_ptr<TokenScores> scores;
  };
  // Called with the scores of each prompt, [layers, KV heads, tokens]; may be empty.
  using Sink = std::function<void(std::uint32_t sequence, std::span<const float> scores)>;

  // `tokens` are repeated at once. The model must outlive the back end. Throws Error (usage) where a layer has a
  // sliding window, behind which the repetition would not see the prompt.
  RepeatingBackend(const Model& model, Parts parts, RepetitionRequest request, std::uint32_t tokens, unsigned threads,
                   Sink sink);

  // Throws Error (usage) where the context of the model has no room for the repetition.
  void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested_new_tokens,
               std::span<float> last, const LogitsSink& all) override;
  void decode(std::span<const DecodeEntry> batch, std::span<float> logits) override {
    parts_.inner->decode(batch, logits);
  }
  bool decode_greedily(std::span<const DecodeEntry> batch, std::span<TokenChoice> choices) override {
    return parts_.inner->decode_greedily(batch, choices);
  }
  void release(std::uint32_t sequence) override;
  [[nodiscard]] KvUsage kv_usage() const override;
  ByteCounters take_counters() override { return parts_.inner->take_counters(); }
  void set_recorder(Recorder* recorder) override { parts_.inner->set_recorder(recorder); }
  void set_observer(LaunchObserver* observer) override { parts_.inner->set_observer(observer); }
  [[nodiscard]] LinearFacts linear_facts() const override { return parts_.inner->linear_facts(); }
  void set_interrupt(const std::atomic<bool>* asked) override;

 private:
  [[nodiscard]] std::vector<float> score(std::uint32_t sequence, std::span<const std::int64_t> ids);

  const Model& model_;
  Parts parts_;
  RepetitionRequest request_;
  std::uint32_t tokens_;
  ThreadPool threads_;
  Sink sink_;
  KvUsage peaks_;  // of passes that repeat, beside what other sequences held then
};

}  // namespace kvroof
