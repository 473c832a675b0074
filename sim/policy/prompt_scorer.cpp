#include "sim/policy/prompt_scorer.hpp"

#include <algorithm>
#include <cmath>

#include "sim/core/error.hpp"

namespace kvroof {

// One token a chunk may be more than the budget. The next row is a token of the window itself.
void PromptScorer::capacities(TokenPos newest, std::uint32_t budget, std::span<std::uint32_t> slots) {
  std::uint32_t tokens = newest.value + 1;
  if (window_ > 0) tokens = std::min(tokens, std::max(window_, 2U) - 1);
  if (chunk_ == 0 || budget >= tokens) return;
  share_ = kept_share(budget_, budget, tokens);
  const std::size_t left = tokens / chunk_ * stay(chunk_) + (tokens % chunk_ > 0 ? stay(tokens % chunk_) : 0);
  std::ranges::fill(slots, static_cast<std::uint32_t>(left));
}

void PromptScorer::evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) {
  held_.begin(request.positions);
  if (chunk_ > 0 && scores_chunks_apart()) {
    score_in_chunks(head, request);
  } else {
    score(head, request, held_.order(), held_.scores);
  }
  check(held_.scores.size() == held_.size(), "a score for each token");
  check_scores(head);
  drop_.clear();
  choose(request, held_.scores, drop_);
  held_.give_up(drop_, victims);
}

// Nothing can be ordered by what is no number.
void PromptScorer::check_scores(HeadId head) const {
  const auto wrong = std::ranges::find_if(held_.scores, [](float x) { return std::isnan(x); });
  if (wrong == held_.scores.end()) return;
  throw Error(fmt::format("policy {}: the score of token {} of layer {}, head {} is no number: q, k or v are too large "
                          "for 32-bit sums there; record or import them again, or take another policy",
                          name_, wrong - held_.scores.begin(), layer_.value, head.value));
}

double PromptScorer::score_gap(HeadId, SlotId a, SlotId b) const { return held_.gap(a, b); }

void PromptScorer::choose(const EvictRequest& request, std::span<const float> scores, std::vector<SlotId>& drop) {
  if (chunk_ > 0) return choose_in_chunks(scores, drop);
  drop_lowest(scores, 0, scores.size(), request.excess, drop);
}

void PromptScorer::score_in_chunks(HeadId head, const EvictRequest& request) {
  held_.scores.clear();
  const std::span<const SlotId> order = held_.order();
  for (std::size_t first = 0; first < order.size(); first += chunk_) {
    score(head, request, order.subspan(first, std::min<std::size_t>(chunk_, order.size() - first)), chunk_scores_);
    held_.scores.insert(held_.scores.end(), chunk_scores_.begin(), chunk_scores_.end());
  }
}

std::size_t PromptScorer::stay(std::size_t length) const {
  return std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(length) * share_));
}

void PromptScorer::choose_in_chunks(std::span<const float> scores, std::vector<SlotId>& drop) const {
  for (std::size_t first = 0; first < scores.size(); first += chunk_) {
    const std::size_t length = std::min<std::size_t>(chunk_, scores.size() - first);
    drop_lowest(scores, first, first + length, length - stay(length), drop);
  }
}

double kept_share(const Budget& budget, std::uint32_t k, std::uint32_t n) {
  return budget.kind == Budget::Kind::kCompression ? 1 - budget.value : static_cast<double>(k) / n;
}

PolicyTraits prompt_scorer_traits(const PolicySpec& spec, TensorNeed tensors) {
  PolicyTraits t;
  if (spec.count("chunk", 0) > 0) t.capacities = Capacities::kByLayer;
  t.tensors = tensors;
  t.unit = mean_or_none_unit(spec);
  if (!spec.find(kLaterParam.name)) {
    t.schedule = Schedule::kPrefillOnly;
    return t;
  }
  read_schedule(spec, t);
  for (const char* way : {"chunk", "block"}) {
    if (t.schedule == Schedule::kPrefillOnly || spec.count(way, 0) == 0) continue;
    throw usage_error(fmt::format("policy {}: {} is a way through a prompt, and when={} evicts while decoding too; "
                                  "give one of them", spec.name, way, *spec.find(kLaterParam.name)));
  }
  return t;
}

bool yes_or_no(const PolicySpec& spec, std::string_view key, bool fallback) {
  return spec.choice(key, {"yes", "no"}, fallback ? "yes" : "no") == "yes";
}

}  // namespace kvroof
