// What SnapKV and its descendants share: scores from the attention that the prompt's last rows pay to the older tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/policy/policy.hpp"
#include "sim/policy/scores.hpp"

namespace kvroof {

// Score of a token = Σ of the weights of the last `window` prompt rows, pooled over neighbours. The window's
// tokens have no score and always stay. SnapKV: Li et al., NeurIPS 2024, snapkv_utils.py.
struct WindowRule {
  std::uint32_t window = 32;
  std::uint32_t kernel = 5;  // odd
  bool max_pool = false;     // else the average; outside the scored tokens lie zeros, which count in it
  GroupReduction reduction = GroupReduction::kSum;
  bool pool_first = false;  // pools each query head before the group is reduced (kvpress), else after
  // Above 0: a query head's score is the mean over the rows and so many times their variance (unbiased), not the sum.
  double variance = 0;
  // A row's weights count as often as it sees tokens before its own: an even share is 1 in every row (FINCH).
  bool by_even_share = false;
};

// Reads window, kernel, pool, group and rule; what is not given is taken from `fallback`, but for the window of
// rule=kvpress, which is that of kvpress.
WindowRule window_rule(const PolicySpec& spec, WindowRule fallback = {});
// Traits of a policy that evicts once, after the prompt, by such scores; `group` says what is stored.
PolicyTraits window_traits(const PolicySpec& spec, const WindowRule& rule);
bool is_kvpress_rule(const PolicySpec& spec);
// What a user may not expect of a budget of k tokens that the window fills: scores choose nothing, and the last k
// tokens stay, as under `same`. Empty: the budget has room for more than the window.
std::string full_window_advice(std::uint32_t window, std::uint32_t k, std::string_view same = "window:when=prefill");
// Likewise where the window's tokens do not stay for certain but are scored above the others.
std::string first_window_advice(std::uint32_t window, std::uint32_t k);

inline constexpr ParamInfo kWindowParam = {"window", "tokens", "32",
                                           "the prompt's last rows, which score the others and whose tokens stay"};
inline constexpr ParamInfo kRuledWindowParam = {
    "window", "tokens", "32",
    "the prompt's last rows, which score the others and whose tokens stay; with rule=kvpress 64", true};
inline constexpr ParamInfo kKernelParam = {"kernel", "odd count", "5", "neighbours over which scores are pooled"};
inline constexpr ParamInfo kPoolParam = {"pool", "avg | max", "avg", "how they are pooled"};
inline constexpr ParamInfo kRuleParam = {"rule", "repository | kvpress", "repository",
                                         "arithmetic of the method's own code, or of NVIDIA's kvpress"};

// evict() gives up the lowest scores outside the window.
class WindowScoredPolicy : public EvictionPolicy {
 public:
  WindowScoredPolicy(const WindowRule& rule, const PolicyContext& context);

  void admit(HeadId head, SlotId slot, TokenPos position) override;
  void observe(HeadId head, const AttentionRows& rows) override;
  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override;
  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override;
  void move(HeadId head, std::span<const SlotMove> moves) override;
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 protected:
  [[nodiscard]] const PolicyContext& context() const { return context_; }
  // Tokens of the window: fewer where the prompt has no more.
  [[nodiscard]] std::uint32_t window() const;
  // After the prompt's last row: the scores of all tokens outside the window, by position.
  [[nodiscard]] std::span<const float> scores(HeadId head) const { return heads_[head.value].scored; }
  // What the head held at that row, the tokens of the window among it.
  [[nodiscard]] std::uint32_t tokens(HeadId head) const { return heads_[head.value].tokens; }
  // In evict(), for policies that decide by something else: the values by which score_gap tells slots apart.
  template <class ScoreOfSlot>
  void replace_scores(HeadId head, std::size_t slots, ScoreOfSlot score) {
    const std::span<float> column = heads_[head.value].columns.column(0, static_cast<std::uint32_t>(slots));
    for (std::size_t s = 0; s < slots; ++s) column[s] = score(s);
    heads_[head.value].walked += column.size_bytes();
  }

 private:
  struct Head {
    explicit Head(std::uint32_t columns_of_group) : columns(columns_of_group) {}
    // Sums of each query head, or means and then squared distances from them; after the last row the first holds the
    // scores.
    SlotColumns<float> columns;
    std::vector<SlotId> order;   // scored slots by position
    std::vector<float> scored, pooled;
    std::uint32_t tokens = 0;
    std::uint64_t walked = 0;
  };
  void add_row(Head& head, const AttentionRows& rows, std::uint32_t g) const;
  [[nodiscard]] float score_of(const Head& head, std::uint32_t g, SlotId slot) const;
  void finish(Head& head, const AttentionRows& rows) const;
  void pool(std::span<const float> values, std::span<float> pooled) const;

  WindowRule rule_;
  PolicyContext context_;
  std::vector<Head> heads_;
};

}  // namespace kvroof
