#include "sim/policy/layer_policy.hpp"

#include <algorithm>

#include "sim/core/error.hpp"
#include "sim/policy/layer_budgets.hpp"

namespace kvroof {
namespace {

// What a head is being asked for, in memory of the thread: heads may be served at once.
struct Choice {
  std::vector<SlotId> chosen;   // by the policy
  std::vector<SlotId> victims;  // that are being freed, ascending
  std::vector<SlotMerge> merges;
};
thread_local Choice choice;

PolicyContext with_storage(PolicyContext context, const PolicyTraits& traits, std::uint32_t query_heads,
                           std::uint32_t kv_heads) {
  check(kv_heads > 0 && query_heads % kv_heads == 0, "query heads are a multiple of the KV heads");
  context.storage_heads = traits.unit == StorageUnit::kQueryHead ? query_heads : kv_heads;
  context.group = query_heads / context.storage_heads;
  return context;
}

}  // namespace

LayerPolicy::LayerPolicy(const PolicySpec& spec, const PolicyContext& model_context, std::uint32_t query_heads,
                         std::uint32_t kv_heads)
    : LayerPolicy(policy_info(spec.name), spec, model_context, query_heads, kv_heads) {}

LayerPolicy::LayerPolicy(const PolicyInfo& info, const PolicySpec& spec, const PolicyContext& model_context,
                         std::uint32_t query_heads, std::uint32_t kv_heads)
    : traits_(info.traits(spec)), context_(with_storage(model_context, traits_, query_heads, kv_heads)) {
  if (const std::string why = refused_prompt(spec, traits_, context_.prompt); !why.empty()) throw usage_error(why);
  if (!traits_.layer_shares.empty()) traits_.layer_shares = layer_shares(spec, std::max(1U, context_.layers));
  traits_.state_bytes += context_.group * traits_.query_head_state;
  traits_.state_read += context_.group * traits_.query_head_state;
  traits_.query_head_state = 0;
  traits_.state_read += context_.group * traits_.query_head_sums;
  traits_.state_written += context_.group * traits_.query_head_sums;
  traits_.query_head_sums = 0;
  if (context_.layer.value < traits_.dense_layers) traits_.page = 0;
  if (info.takes_budget && (traits_.bound || !traits_.selects)) budget_ = spec.budget;
  policy_ = info.make(spec, context_);
  heads_.resize(context_.storage_heads);
  evictions_.resize(context_.storage_heads);
  capacities_.assign(context_.storage_heads,
                     budget_of_layer(budget_.tokens(context_.prompt, context_.prompt), context_.prompt));
}

bool LayerPolicy::observes(TokenPos position) const {
  if (traits_.rows == RowNeed::kNone) return false;
  if (position.value >= context_.prompt) return traits_.schedule == Schedule::kEveryStep;
  return traits_.rows == RowNeed::kAll || position.value + traits_.last_rows >= context_.prompt;
}

void LayerPolicy::observe(HeadId head, const AttentionRows& rows) {
  if (!observes(rows.query)) return;
  Head& h = heads_[head.value];
  policy_->observe(head, rows);
  h.counts.state_read += rows.slots() * traits_.state_read;
  h.counts.state_written += rows.slots() * traits_.state_written;
  h.counts.policy_flops.scoring += traits_.flops_per_slot * rows.slots() * rows.group;
  // Exact weights take the keys that the row did not read.
  if (traits_.selects && traits_.needs_weights) {
    const auto elements = static_cast<std::uint64_t>(std::ranges::count(h.is_read, 0)) * context_.head_dim;
    h.counts.scored += elements;
    h.counts.policy_flops.scoring += 2.0 * static_cast<double>(elements) * rows.group;
  }
  h.counts.policy_flops.noise += traits_.noise_flops_per_slot * rows.slots() * rows.group;
}

void LayerPolicy::share_prompt(const LayerPolicy& seen) {
  policy_ = seen.policy_->clone();
  heads_ = seen.heads_;
}

std::uint32_t LayerPolicy::budget_at(TokenPos position) const {
  return budget_.tokens(context_.prompt, position.value + 1);
}

bool LayerPolicy::evicts_after(TokenPos position) const {
  if (traits_.selects) return false;
  const bool last_of_prompt = position.value + 1 == context_.prompt;
  if (position.value + 1 < context_.prompt) return traits_.streams_prompt;
  if (last_of_prompt) return true;
  return traits_.schedule == Schedule::kEveryStep && step_of(position).value % traits_.interval == 0;
}

bool LayerPolicy::keeps_prompt() const {
  const bool told = traits_.capacities == Capacities::kBudget || !traits_.layer_shares.empty();
  if (!told && budget_.kind == Budget::Kind::kUnlimited) return false;
  if (context_.window > 0 && context_.prompt > context_.window) return false;
  return traits_.selects || std::ranges::all_of(capacities_, [&](auto slots) { return slots >= context_.prompt; });
}

std::uint32_t LayerPolicy::most_rows(HeadId head, std::uint32_t most_tokens) const {
  const std::uint32_t all = context_.window > 0 ? std::min(context_.window, most_tokens) : most_tokens;
  std::uint64_t most = std::min(context_.prompt, capacity(head));
  if (traits_.schedule == Schedule::kPrefillOnly) {
    most += most_tokens - context_.prompt;
  } else {
    const bool by_attention = traits_.capacities == Capacities::kByHead;
    const std::uint32_t later = by_attention ? capacity(head) : budget_of_layer_at(most_tokens);
    most = std::max<std::uint64_t>(most, later) + traits_.interval;
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(all, most));
}

std::uint32_t LayerPolicy::budget_of_layer(std::uint32_t budget, std::uint32_t tokens) {
  if (traits_.layer_shares.empty() || budget >= tokens) return budget;
  if (budget != shared_) own_share_ = layer_budget(traits_.layer_shares, context_, budget, tokens);
  shared_ = budget;
  return own_share_;
}

// In a sequence of so many tokens.
std::uint32_t LayerPolicy::budget_of_layer_at(std::uint32_t tokens) const {
  return layer_budget(traits_.layer_shares, context_, budget_.tokens(context_.prompt, tokens), tokens);
}

void LayerPolicy::set_capacities(TokenPos newest, std::uint32_t budget) {
  std::fill(capacities_.begin(), capacities_.end(), budget_of_layer(budget, newest.value + 1));
  if (traits_.capacities == Capacities::kBudget) return;
  policy_->capacities(newest, budget, capacities_);
  for (std::uint32_t& slots : capacities_) slots = std::max(slots, 1U);
}

void LayerPolicy::finish_row(TokenPos position, const HeadRowsSource* rows) {
  rows_ = rows;
  std::uint64_t present = 0;
  const std::uint32_t budget = budget_at(position);
  // A bound drops nothing, but stands for a cache that would hold no more than its budget and the newest token.
  std::uint64_t paged = 0;
  for (const Head& h : heads_) {
    const std::uint64_t held = traits_.keeps_all() ? std::min<std::uint64_t>(h.present(), budget + 1ULL) : h.present();
    present += held;
    paged += in_pages(held);
  }
  allocated_ = std::max(allocated_, present);
  allocated_paged_ = std::max(allocated_paged_, paged);
  packed_prompt_ = false;
  for (HeadEviction& e : evictions_) e.clear();
  if (traits_.keeps_all()) budget_now_ = budget;
  if (traits_.page > 0 && position.value + 1 == context_.prompt) {
    for (std::uint32_t h = 0; h < heads_.size(); ++h) show_keys(HeadId(h), rows);
  }
  if (evicts_after(position)) evict_from_heads(position, budget);
  if (position.value + 1 == context_.prompt && !traits_.streams_prompt && !traits_.keeps_all()) pack_prompt();
}

void LayerPolicy::evict_from_heads(TokenPos position, std::uint32_t budget) {
  // Scores of k, v and q may decide what each head may hold; until then every head has the budget.
  const bool scores_first = traits_.scores_layer_first && traits_.capacities != Capacities::kBudget;
  if (scores_first) {
    std::ranges::fill(capacities_, budget_of_layer(budget, position.value + 1));
  } else {
    set_capacities(position, budget);
  }
  const bool pack = position.value + 1 == context_.prompt && !traits_.streams_prompt;
  for (std::uint32_t h = 0; h < heads_.size(); ++h) {
    if (heads_[h].present() > capacities_[h]) drop_hidden(HeadId(h), position, pack);
  }
  if (traits_.scores_layer_first) score_heads(position);
  if (scores_first) set_capacities(position, budget);
  for (std::uint32_t h = 0; h < heads_.size(); ++h) {
    Head& head = heads_[h];
    if (head.present() > capacities_[h]) bring_to_capacity(HeadId(h), position, pack);
    else if (traits_.orders_full_heads && head.present() == capacities_[h] && !head.hole) order(HeadId(h), position);
  }
}

// Where a policy or a window left something out of the prompt, the rest moves into a cache of its own. That is new:
// heads that lost nothing are copied with the others.
void LayerPolicy::pack_prompt() {
  packed_prompt_ = std::ranges::any_of(heads_, [&](const Head& h) { return h.present() < context_.prompt; });
  if (!packed_prompt_) return;
  for (Head& head : heads_) head.counts.moved += head.present();
  leave_prompt_buffer();
}

bool LayerPolicy::ends_heads() const {
  const PolicyTraits& t = traits_;
  const bool apart = !t.one_set_per_layer() && !t.scores_layer_first && !t.selects && !t.bound && !review_;
  return apart && t.capacities == Capacities::kBudget && t.layer_shares.empty() && t.rows != RowNeed::kLast &&
         !t.tensors.any();
}

void LayerPolicy::finish_head(HeadId head, TokenPos position) {
  Head& h = heads_[head.value];
  h.counts.allocated = h.present();
  h.counts.allocated_paged = in_pages(h.present());
  evictions_[head.value].clear();
  if (!evicts_after(position)) return;
  capacities_[head.value] = budget_at(position);
  if (h.present() > capacity(head)) drop_hidden(head, position, false);
  if (h.present() > capacity(head)) bring_to_capacity(head, position, false);
}

// Done for all heads before any chooses victims, so that heads with one set still hold the same tokens then.
void LayerPolicy::drop_hidden(HeadId head, TokenPos position, bool pack) {
  Head& h = heads_[head.value];
  check(!h.hole, "every row admits a token to every head");
  if (context_.window == 0) return;
  const auto hidden = take_hidden(h, TokenPos(position.value + 1));
  if (!hidden) return;
  const bool enough = h.present() - 1 <= capacity(head);
  choice.victims.assign(1, *hidden);
  free_slots(head, pack ? Close::kPack : enough ? Close::kLeaveHole : Close::kFill);
}

void LayerPolicy::bring_to_capacity(HeadId head, TokenPos position, bool pack) {
  Head& h = heads_[head.value];
  if (!traits_.one_set_per_layer() || head.value == 0) choose_victims(head, position);
  h.counts.state_read += h.positions.size() * traits_.evict_read;
  review_victims(head);
  if (traits_.merges) merge_victims(head, position);
  HeadEviction& e = evictions_[head.value];
  for (const SlotId slot : choice.victims) e.evicted.push_back(h.positions[slot.value]);
  if (e.evicted.size() > 1) std::sort(e.evicted.begin(), e.evicted.end());
  free_slots(head, pack ? Close::kPack : Close::kLeaveHole);
}

// Nothing goes, and the policy puts what it holds into the order that its next eviction depends on.
void LayerPolicy::order(HeadId head, TokenPos newest) {
  choose_victims(head, newest);
  check(choice.chosen.empty(), "a policy frees no slot of a head that holds its budget");
  heads_[head.value].counts.state_read += heads_[head.value].positions.size() * traits_.evict_read;
}

void LayerPolicy::score_heads(TokenPos newest) {
  for (std::uint32_t h = 0; h < heads_.size(); ++h) {
    if (heads_[h].present() <= capacities_[h]) continue;
    show_request(HeadId(h), newest, [&](const EvictRequest& request) { policy_->score_head(HeadId(h), request); });
  }
}

void LayerPolicy::choose_victims(HeadId head, TokenPos newest) {
  choice.chosen.clear();
  heads_[head.value].counts.policy_flops.selection += static_cast<double>(heads_[head.value].positions.size());
  const auto evict = [&](const EvictRequest& request) { policy_->evict(head, request, choice.chosen); };
  const bool shows = traits_.tensors.any() && !traits_.scores_layer_first && !traits_.merges;
  if (!shows) return evict(request_for(head, newest));
  show_request(head, newest, evict);
}

EvictRequest LayerPolicy::request_for(HeadId head, TokenPos newest) const {
  const Head& h = heads_[head.value];
  const auto slots = static_cast<std::uint32_t>(h.positions.size());
  return {step_of(newest), newest, capacity(head), slots - capacity(head), h.positions};
}

// With the tensors that the traits ask for, and counts what is read of them.
void LayerPolicy::show_request(HeadId head, TokenPos newest, const std::function<void(const EvictRequest&)>& show) {
  Head& h = heads_[head.value];
  EvictRequest request = request_for(head, newest);
  check(rows_ != nullptr, "a policy that scores by k, v or q is given their rows");
  const HeadRows rows = rows_->rows(head);
  HeadTensors tensors(rows, h.positions, evictions_[head.value].moves, tensor_scratch_);
  request.tensors = &tensors;
  show(request);
  h.counts.scored += elements_to_score(rows, h, newest);
  h.scored = newest.value + 1;
  h.read_elements += tensors.elements_read();
  h.counts.policy_flops.scoring += tensors.flops();
}

// What the traits announce, for the simulator's count.
std::uint64_t LayerPolicy::elements_to_score(const HeadRows& rows, const Head& head, TokenPos newest) const {
  const TensorNeed& need = traits_.tensors;
  std::uint64_t slots = head.positions.size();
  if (need.once) {
    slots = static_cast<std::uint64_t>(
        std::ranges::count_if(head.positions, [&](TokenPos p) { return p.value >= head.scored; }));
  }
  std::uint64_t elements = 0;
  if (need.keys) elements += slots * rows.keys.width;
  if (need.values) elements += slots * rows.values.width;
  if (newest.value + 1 == context_.prompt) {
    elements += std::min<std::uint64_t>(need.queries, context_.prompt) * context_.group * rows.keys.width;
  }
  return elements;
}

void LayerPolicy::review_victims(HeadId head) {
  const std::size_t slots = heads_[head.value].positions.size();
  choice.victims.assign(choice.chosen.begin(), choice.chosen.end());
  if (review_) review_(head, heads_[head.value].positions, choice.victims);
  if (choice.victims.size() > 1) std::sort(choice.victims.begin(), choice.victims.end());
  const std::vector<SlotId>& victims = choice.victims;
  const bool distinct = std::adjacent_find(victims.begin(), victims.end()) == victims.end();
  check(distinct && !victims.empty() && victims.size() >= slots - capacity(head) && victims.back().value < slots,
        "a policy frees at least the excess, each occupied slot once");
}

// A merge reads and writes the row that takes up another, and reads that: its v (its key was read to compare).
void LayerPolicy::merge_victims(HeadId head, TokenPos newest) {
  choice.merges.clear();
  show_request(head, newest, [this, head](const EvictRequest& request) {
    policy_->merge(head, request, choice.victims, choice.merges);
    const HeadTensors& tensors = *request.tensors;
    for (const SlotMerge& m : choice.merges) {
      evictions_[head.value].merges.push_back({tensors.row_of(m.from), tensors.row_of(m.to), m.kept, m.added});
    }
    Head& h = heads_[head.value];
    const std::uint64_t v_elements = choice.merges.size() * tensors.value_width();
    h.counts.scored += v_elements;
    h.read_elements += v_elements;
    const std::uint64_t elements = choice.merges.size() * tensors.key_width() + v_elements;
    h.counts.policy_flops.scoring += 3.0 * static_cast<double>(elements);
    h.counts.moved += choice.merges.size();
  });
}

void LayerPolicy::free_slots(HeadId head, Close close) {
  Head& h = heads_[head.value];
  HeadEviction& e = evictions_[head.value];
  const std::size_t left = h.positions.size() - choice.victims.size();
  if (close == Close::kLeaveHole && choice.victims.size() == 1 && choice.victims.front().value != left) {
    h.hole = choice.victims.front();
    return;
  }
  const std::size_t before = e.moves.size();
  if (close == Close::kPack) {
    plan_packing(h, e);
  } else {
    plan_filling(h, e, left);
  }
  const std::span<const SlotMove> moves = std::span(e.moves).subspan(before);
  for (const SlotMove& m : moves) h.positions[m.to.value] = h.positions[m.from.value];
  h.positions.resize(left);
  policy_->move(head, moves);
  h.counts.state_read += moves.size() * traits_.state_bytes;
  h.counts.state_written += moves.size() * traits_.state_bytes;
  if (close != Close::kPack) h.counts.moved += moves.size();  // the rows of a prompt are moved once, when it is packed
}

// Survivors keep their order and close up.
void LayerPolicy::plan_packing(const Head& head, HeadEviction& eviction) const {
  std::uint32_t to = 0;
  std::size_t next_victim = 0;
  for (std::uint32_t from = 0; from < head.positions.size(); ++from) {
    if (next_victim < choice.victims.size() && choice.victims[next_victim].value == from) {
      ++next_victim;
      continue;
    }
    if (from != to) eviction.moves.push_back({SlotId(from), SlotId(to)});
    ++to;
  }
}

// The survivors in the last slots take the holes before them.
void LayerPolicy::plan_filling(const Head& head, HeadEviction& eviction, std::size_t left) const {
  std::size_t hole = 0;
  const std::vector<SlotId>& victims = choice.victims;
  std::size_t next_victim = static_cast<std::size_t>(
      std::lower_bound(victims.begin(), victims.end(), SlotId(static_cast<std::uint32_t>(left))) - victims.begin());
  for (auto from = static_cast<std::uint32_t>(left); from < head.positions.size(); ++from) {
    if (next_victim < choice.victims.size() && choice.victims[next_victim].value == from) {
      ++next_victim;
    } else {
      eviction.moves.push_back({SlotId(from), choice.victims[hole++]});
    }
  }
}

// The survivors are copied out of the layer's prompt buffer, which is no part of the cache.
void LayerPolicy::leave_prompt_buffer() {
  allocated_ = rows_held();
  allocated_paged_ = 0;
  for (const Head& h : heads_) allocated_paged_ += in_pages(h.present());
}

std::uint64_t LayerPolicy::rows_held() const {
  std::uint64_t rows = 0;
  for (const Head& h : heads_) rows += h.present();
  return rows;
}

StepId LayerPolicy::step_of(TokenPos position) const {
  return StepId(position.value < context_.prompt ? 0 : position.value - context_.prompt + 1);
}

}  // namespace kvroof
