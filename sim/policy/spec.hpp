// Policy specifications: name[:key=value]…, several separated by commas.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/kv_type.hpp"
#include "sim/policy/budget.hpp"

namespace kvroof {

struct TokenScores;

// What other policies are compared with: nothing is evicted, and every token is read.
inline constexpr std::string_view kFullAttention = "full";

struct PolicySpec {
  std::string name;
  Budget budget;  // from budget= or compression=, or set from --budget; kUnlimited when there is none
  bool has_budget = false;
  std::vector<std::pair<std::string, std::string>> params;  // the others, in the order written
  std::optional<KvType> kv{};  // of the cache; none: as the run or the trace has it
  std::string preset{};        // the name that stood for policy and cache (presets.hpp); empty: none did

  // [layers][KV heads]: what the file that heads= names says of each head, once policy_points() has read it.
  std::vector<std::vector<float>> head_values = {};
  // What the file that file= names says of each token, likewise.
  std::shared_ptr<const TokenScores> token_scores = nullptr;

  [[nodiscard]] bool is_full() const { return name == kFullAttention; }
  // name:key=value… with the budget first: identifies a point of a sweep.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::optional<std::string_view> find(std::string_view key) const;

  // Typed access for policies; each throws Error (usage) that names policy, parameter, value and what is expected.
  [[nodiscard]] std::uint32_t count(std::string_view key, std::uint32_t fallback, std::uint32_t least = 0) const;
  [[nodiscard]] double number(std::string_view key, double fallback, double least, double most) const;
  [[nodiscard]] std::string choice(std::string_view key, std::initializer_list<std::string_view> allowed,
                                   std::string_view fallback) const;
};

// A count of tokens, or with a decimal point or % a share of k: `recent` and `heavy`.
struct TokensOrShare {
  bool is_share = false;
  double value = 0;
  // floor(share · k) or the count, at most k.
  [[nodiscard]] std::uint32_t of(std::uint32_t k) const;
};
TokensOrShare tokens_or_share(const PolicySpec& spec, std::string_view key, TokensOrShare fallback);

// Whether two valid specifications decide alike of the same rows: one policy with the same budget and values, however
// they are written and whether defaults are written out; of one that has the model repeat the prompt, with whatever
// file of scores as well. The type of the cache is not looked at.
bool same_decisions(const PolicySpec& a, const PolicySpec& b);

// Parses and validates names, parameters and values of "a:x=1, b" against the table; blanks around an item are none of
// it. Throws Error (usage), with a suggestion where a name is nearly right.
std::vector<PolicySpec> parse_policies(std::string_view text);

// The sweep of policies × budgets: a policy that carries a budget is one point, `full` is one point, every other gets
// one point for each of `budgets`. Throws Error (usage) when a policy has no budget, and when none lacks one of these.
std::vector<PolicySpec> cross_budgets(std::vector<PolicySpec> policies, const std::vector<Budget>& budgets);

}  // namespace kvroof
