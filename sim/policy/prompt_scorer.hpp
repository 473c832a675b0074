// PromptScorer: the base of policies that score every token of a prompt once, by its k and v, and drop the lowest.
#pragma once

#include <string>
#include <vector>

#include "sim/attention/sums.hpp"
#include "sim/policy/scores_by_age.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {

// Evicts once, after the prompt (where it has the parameter when, also while decoding), and keeps no state. Derived
// classes say what the tokens are worth; the lowest scores go, of equals the oldest. Throws Error where a score is no
// number, as with k or v so large that sums of squares overflow.
class PromptScorer : public StatelessPolicy {
 public:
  PromptScorer(const PolicySpec& spec, const PolicyContext& context)
      : name_(spec.name),
        layer_(context.layer),
        chunk_(spec.count("chunk", 0)),
        budget_(spec.budget),
        window_(context.window) {}
  void capacities(TokenPos newest, std::uint32_t budget, std::span<std::uint32_t> slots) override;
  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) final;
  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const final;
  // For policies that decide by this one's scores: one for each of these tokens, all of the request, oldest first.
  void score_all(HeadId head, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) {
    score(head, request, order, scores);
  }
  // Of n tokens, the first that have the largest score of all whatever their own.
  [[nodiscard]] virtual std::size_t protected_of(std::size_t /*n*/) const { return 0; }

 protected:
  // One score for each of these tokens, oldest first: all of the request or, with chunk=, those of one chunk.
  virtual void score(HeadId head, const EvictRequest& request, std::span<const SlotId> order,
                     std::vector<float>& scores) = 0;
  // Appends at least request.excess of the tokens 0 … scores.size() − 1, counted from the oldest, to `drop`. By default
  // those with the lowest scores, of the whole prompt or, with chunk=, of each chunk of tokens.
  virtual void choose(const EvictRequest& request, std::span<const float> scores, std::vector<SlotId>& drop);
  // Whether scores of a chunk depend on its tokens alone; no: all tokens are scored together.
  [[nodiscard]] virtual bool scores_chunks_apart() const { return true; }

 private:
  void score_in_chunks(HeadId head, const EvictRequest& request);
  void choose_in_chunks(std::span<const float> scores, std::vector<SlotId>& drop) const;
  // Of a chunk of so many tokens.
  [[nodiscard]] std::size_t stay(std::size_t length) const;

  void check_scores(HeadId head) const;

  std::string name_;
  LayerId layer_;
  std::uint32_t chunk_;
  Budget budget_;
  std::uint32_t window_;  // of the layer; 0: none
  double share_ = 1;      // of the tokens that a window leaves, what stays
  ScoresByAge held_;
  std::vector<float> chunk_scores_;
  std::vector<SlotId> drop_;
};

// The share of a prompt of n tokens that stays: 1 − r where the budget is a compression, else k / n.
double kept_share(const Budget& budget, std::uint32_t k, std::uint32_t n);

// What scorers of a prompt have in common: no attention rows, one eviction, the parameters chunk and group.
PolicyTraits prompt_scorer_traits(const PolicySpec& spec, TensorNeed tensors);
bool yes_or_no(const PolicySpec& spec, std::string_view key, bool fallback);

inline constexpr ParamInfo kChunkParam = {
    "chunk", "tokens", "0",
    "choose within each chunk of so many tokens by itself, where max(1, int(length · share)) stay; 0: among all"};
// For scores that go by the set of tokens alone: an eviction does not keep the order in which kvpress stores them.
inline constexpr ParamInfo kLaterParam = {
    "when", "prefill | every_step | 8", "prefill",
    "prefill: once after the prompt; a number: also after every so many steps, as kvpress' DecodingPress"};
inline constexpr ParamInfo kKeyGroupParam = {
    "group", "mean | none", "mean", "none: a set for each query head, k and v stored for each; mean: one a KV head"};

}  // namespace kvroof
