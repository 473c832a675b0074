// The laws that every policy of the table is tested by, and the only exemptions from them, each with its reason.
//
// A law says what an exempted policy must hold instead where there is such a thing. A new policy is under every law
// unless a line here exempts it: by what its traits announce, or, where nothing announces it, by name.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "sim/policy/policy.hpp"

namespace kvroof::test {

namespace law {
inline constexpr std::string_view kWhole = "with k of at least all tokens nothing is evicted";
inline constexpr std::string_view kBudget = "a head never holds more than k tokens after a row that may evict";
inline constexpr std::string_view kAll = "a budget of at least all tokens reads all of them";
inline constexpr std::string_view kProtected = "tokens of which a parameter says that they stay are always there";
inline constexpr std::string_view kHeads = "permuting the heads permutes the sets";
inline constexpr std::string_view kLayers = "a layer decides alike wherever it lies in the model";
inline constexpr std::string_view kCopies = "a KV head that comes twice, with its queries, keeps the same tokens twice";
inline constexpr std::string_view kNested = "after the prompt a larger budget keeps what a smaller one keeps";
inline constexpr std::string_view kRecall = "at no step a larger budget recalls less";
inline constexpr std::string_view kBound = "an output changes by at most 2 (1 − recall) · max ‖v‖";
inline constexpr std::string_view kOracle = "no step recalls more than the oracle of the same budget";
}  // namespace law

struct Exemption {
  std::string_view law;
  std::string_view who;
  std::string_view reason;
  bool (*applies)(const PolicySpec& spec, const PolicyTraits& traits);
};

inline bool draws(const PolicyTraits& t) { return t.noise_flops_per_slot > 0 || t.noise_flops_per_token > 0; }
inline bool blends_by_budget(const PolicySpec& spec) {
  return spec.name == "compactor" && spec.find("blend").value_or("compression") == "compression";
}
inline bool once(const PolicyTraits& t) { return t.schedule == Schedule::kPrefillOnly; }

inline const std::vector<Exemption>& exemptions() {
  using Spec = PolicySpec;
  using Traits = PolicyTraits;
  static const std::vector<Exemption> all = {
      {law::kWhole, "policies without a budget that evict", "what a head holds follows from its attention, not from k",
       [](const Spec& s, const Traits& t) {
         return !policy_info(s.name).takes_budget && t.capacities == Capacities::kByHead && t.rows != RowNeed::kNone;
       }},
      {law::kBudget, "policies with capacities of their own", "layers or heads get more or less than k, which is about "
       "their mean; a head holds at most its capacity",
       [](const Spec&, const Traits& t) { return t.capacities != Capacities::kBudget; }},
      {law::kBudget, "policies that evict once after the prompt", "they grow by one a step afterwards",
       [](const Spec&, const Traits& t) { return once(t); }},
      {law::kBudget, "bounds and policies that select what they read", "they hold all tokens and read k of them",
       [](const Spec&, const Traits& t) { return t.bound || t.selects; }},
      {law::kAll, "quest with rule=repository", "it reads as many whole pages as the budget fills, and no part of one",
       [](const Spec& s, const Traits&) { return s.name == "quest" && s.find("rule") == "repository"; }},
      {law::kProtected, "chunkkv", "whole chunks stay or go: the last rows count as much as the best token, no more",
       [](const Spec& s, const Traits&) { return s.name == "chunkkv"; }},
      {law::kProtected, "criticalkv", "it has the parameters of both its inner policies, of which one protects",
       [](const Spec& s, const Traits&) { return s.name == "criticalkv"; }},
      {law::kHeads, "policies that draw", "draws belong to a head: noise would be permuted together with the heads",
       [](const Spec&, const Traits& t) { return draws(t); }},
      {law::kHeads, "duo", "it is told which heads keep everything",
       [](const Spec& s, const Traits&) { return s.name == "duo"; }},
      {law::kLayers, "duo", "it is told which heads of which layer keep everything",
       [](const Spec& s, const Traits&) { return s.name == "duo"; }},
      {law::kLayers, "policies that draw", "draws belong to a layer",
       [](const Spec&, const Traits& t) { return draws(t); }},
      {law::kLayers, "pyramidkv, and other policies with layers= other than uniform", "layer budgets do not permute",
       [](const Spec& s, const Traits&) {
         return s.name == "pyramidkv" || s.find("layers").value_or("uniform") != "uniform";
       }},
      {law::kLayers, "scores and kvzip with share=model",
       "layers share one budget, and of equal scores one has the last slot",
       [](const Spec& s, const Traits&) {
         return s.find("share").value_or(s.name == "kvzip" ? "model" : "") == "model";
       }},
      {law::kLayers, "policies with dense layers", "their first layers read everything",
       [](const Spec&, const Traits& t) { return t.dense_layers > 0; }},
      {law::kCopies, "policies that draw", "the copies draw for themselves",
       [](const Spec&, const Traits& t) { return draws(t); }},
      {law::kCopies, "duo", "the copy of a head may be of the other kind",
       [](const Spec& s, const Traits&) { return s.name == "duo"; }},
      {law::kCopies, "kv-compress",
       "as few pages go as reach the mean k: of two copies one may lose one more",
       [](const Spec& s, const Traits&) { return s.name == "kv-compress"; }},
      {law::kNested, "policies that select what they read", "the sets are those of a row, not of the prompt",
       [](const Spec&, const Traits& t) { return t.selects; }},
      {law::kNested, "policies that evict while the prompt goes on", "what a row pays depends on what is held",
       [](const Spec&, const Traits& t) { return t.streams_prompt; }},
      {law::kNested, "compactor", "its blend of two scores goes by the budget, unless blend= says otherwise",
       [](const Spec& s, const Traits&) { return blends_by_budget(s); }},
      {law::kRecall, "compactor", "its blend of two scores goes by the budget, unless blend= says otherwise",
       [](const Spec& s, const Traits&) { return blends_by_budget(s); }},
      {law::kRecall, "policies that look at attention while decoding",
       "what a row pays depends on what is held: their sets are not nested",
       [](const Spec&, const Traits& t) { return t.rows != RowNeed::kNone && !once(t) && !t.selects; }},
      {law::kRecall, "keydiff that evicts while decoding", "its mean is that of the keys that are held",
       [](const Spec& s, const Traits& t) { return s.name == "keydiff" && !once(t); }},
      {law::kRecall, "oracle-causal", "the best for all steps together may recall less at one of them",
       [](const Spec& s, const Traits&) { return s.name == "oracle-causal"; }},
      {law::kBound, "policies that merge tokens", "a value that stays is no longer that of its own token",
       [](const Spec&, const Traits& t) { return t.merges; }},
      {law::kOracle, "policies that may hold more than k",
       "they grow after the prompt or between evictions, or have capacities of their own; the oracle gets as many "
       "slots as the policy attended",
       [](const Spec&, const Traits& t) { return once(t) || t.interval > 1 || t.capacities != Capacities::kBudget; }},
      {law::kOracle, "policies with dense layers", "their first layers read everything",
       [](const Spec&, const Traits& t) { return t.dense_layers > 0; }},
  };
  return all;
}

// Why a policy is exempted from a law; empty: it is not.
inline std::string_view exempt(std::string_view law, const PolicySpec& spec) {
  const PolicyTraits traits = policy_info(spec.name).traits(spec);
  for (const Exemption& e : exemptions()) {
    if (e.law == law && e.applies(spec, traits)) return e.reason;
  }
  return {};
}

}  // namespace kvroof::test
