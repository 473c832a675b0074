// EvictionPolicy: decides which cached tokens the storage heads of one layer give up.
//
// One object serves one (sequence, layer). For each row (a query position) the caller does, in this order:
//
//   admit    the new token occupies `slot` of a head
//   add_keys where the traits ask for pages: the keys that the head holds, after the prompt and before a decoded row
//            is read
//   select   which slots are read (default: all)
//   observe  the attention that the row paid to the slots, one row for each query head of the group
//   capacities  where rows may evict: how many slots each head may hold (default: the budget for all)
//   evict    only while the head is over its capacity: name the slots to free
//   merge    where the traits say so: which survivors take up tokens that go
//   move     survivors changed slots
//
// Prompt rows are observed in order like any other; the first evict comes after the last of them, unless the policy
// streams the prompt. Eviction is final: a policy never sees an evicted slot again until a new token is admitted there.
// Calls for different heads may come from different threads, those for one head never overlap.
// Ties: the oldest token goes first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/ids.hpp"
#include "sim/policy/head_tensors.hpp"
#include "sim/policy/host_needs.hpp"
#include "sim/policy/score_recipe.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

class FutureAttention;

// What a token is in its vocabulary, for policies that treat kinds of tokens differently.
enum class TokenKind : std::uint8_t { kOther, kSpecial, kPunctuation };

// Fixed for the life of one policy object.
struct PolicyContext {
  std::uint32_t sequence = 0;
  LayerId layer{};
  std::uint32_t layers = 1;
  std::uint32_t storage_heads = 1;
  std::uint32_t group = 1;  // query heads that read one storage head
  std::uint32_t head_dim = 0;
  std::uint32_t prompt = 0;
  std::uint32_t requested_new_tokens = 0;  // Keyformer's T
  std::uint32_t window = 0;                // tokens that a query of the layer sees, its own included; 0: all
  std::uint64_t seed = 0;
  float scale = 0;             // multiplies q·k
  LayerRotation rotation = {};
  // W_O of the layer, [hidden, query heads · v width], where the traits ask for it; outlives the policy.
  RowsView output_projection = {};
  // By position, of at least the tokens admitted so far; where the traits ask for it. Outlives the policy.
  const std::vector<TokenKind>* token_kinds = nullptr;
  const FutureAttention* future = nullptr;  // where the traits ask for it and a replay has it; outlives the policy
};

// Rows of weights before they are scaled: weight s of row g is values[g · stride + s] · factors[g].
struct ScaledRows {
  const float* values = nullptr;
  std::size_t stride = 0;
  const float* factors = nullptr;  // null: 1

  [[nodiscard]] float factor(std::uint32_t g) const { return factors == nullptr ? 1.0F : factors[g]; }
};

// The attention of one query position over the slots of one storage head. Slot s holds the token at positions[s].
struct AttentionRows {
  StepId step{};  // 0 in the prompt
  TokenPos query{};
  std::span<const TokenPos> positions;  // [slots]
  std::uint32_t group = 1;
  const float* logits = nullptr;   // [group][slots]: after scale, soft-cap and bias, where the policy reads them
  // [group][slots]: softmax of the logits over these slots (and the head's sink), where the policy needs it.
  const float* weights = nullptr;
  // Instead of the weights, where the policy scales them and the caller has them so; where the traits tell of noisy
  // rows, those, and then there may be no logits.
  ScaledRows unscaled = {};
  const float* queries = nullptr;  // [group][head_dim], in the cache's precision: in select() where traits.page > 0

  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(positions.size()); }
  [[nodiscard]] std::span<const float> logits_of(std::uint32_t g) const {
    return {logits + std::size_t{g} * slots(), slots()};
  }
  [[nodiscard]] std::span<const float> weights_of(std::uint32_t g) const {
    return {weights + std::size_t{g} * slots(), slots()};
  }
  // For a policy that scales weights.
  [[nodiscard]] ScaledRows scaled_weights() const {
    return unscaled.values != nullptr ? unscaled : ScaledRows{weights, slots()};
  }
};

struct EvictRequest {
  StepId step{};
  TokenPos newest{};                    // position of the newest token
  std::uint32_t budget = 0;             // slots the head may hold: its capacity
  std::uint32_t excess = 0;             // at least so many must go; positions.size() − budget
  std::span<const TokenPos> positions;  // [slots]
  HeadTensors* tensors = nullptr;       // where the traits ask for it
};

struct SlotMove {
  SlotId from{};
  SlotId to{};
};

// k and v of the token in `to` become kept · its own + added · those of the token in `from`, which goes.
struct SlotMerge {
  SlotId from{};
  SlotId to{};
  float kept = 1;
  float added = 0;
};

// kLast: the last traits.last_rows rows of the prompt, and what follows it.
enum class RowNeed : std::uint8_t { kNone, kLast, kAll };
enum class StorageUnit : std::uint8_t { kKvHead, kQueryHead };
enum class Schedule : std::uint8_t { kEveryStep, kPrefillOnly };
// The heads that keep one set of tokens: evict is asked of the first of them alone. kModel: the policy is made of one
// layer that has the heads of all; replay only.
enum class Scope : std::uint8_t { kHead, kLayer, kModel };
// Whether EvictionPolicy::capacities() has a say: layers may then hold more or less than the budget, or heads may.
enum class Capacities : std::uint8_t { kBudget, kByLayer, kByHead };

// The rows of k, v and q that a policy reads each time it is asked to evict.
struct TensorNeed {
  static constexpr std::uint32_t kWholePrompt = 0xffffffffU;
  bool keys = false;
  bool values = false;
  std::uint32_t queries = 0;       // of the last so many prompt rows; only after the prompt
  // Rows of k and v only of tokens that came since the last time: the policy keeps what it made of the others.
  bool once = false;

  [[nodiscard]] bool any() const { return keys || values || queries > 0; }
};

// Prompts of fewer tokens that the budget does not keep whole are refused (refused_prompt()).
struct LeastPrompt {
  std::uint32_t tokens = 0;
  std::string_view why, remedy;  // "… evicts from …"; "give …, or"
};

// What a policy needs and costs; fixed once its parameters are known.
struct PolicyTraits {
  RowNeed rows = RowNeed::kNone;            // which attention rows it observes
  std::uint32_t last_rows = 0;              // of RowNeed::kLast
  bool needs_weights = false;               // softmax weights beside the logits
  bool scales_weights = false;              // reads AttentionRows::scaled_weights() alone
  bool reads_logits = true;                 // false: the weights say it all, and a caller may leave the logits out
  // What goes follows from sums over all rows, none of which counts less later: roundings of single weights even out.
  bool adds_up_rows = false;
  std::optional<NoisyScore> noisy_rows = {};  // all that it looks at of a row, be it shown these or the logits
  TensorNeed tensors = {};
  bool scores_layer_first = false;          // implements score_head()
  HostNeeds needs = {};  // of who runs it, beside those that other traits tell of: host_needs() has all
  StorageUnit unit = StorageUnit::kKvHead;  // kQueryHead (group=none) stores k and v once for each query head
  Scope scope = Scope::kHead;
  // What a head keeps depends on which one it is, not on its attention alone: of a model it was not told of, nothing is
  // known.
  bool tells_heads_apart = false;
  // Goes by position, whole blocks at once, so that a prefix cache finds those that stay (vLLM behind sliding windows).
  bool evicts_whole_blocks = false;
  LeastPrompt least_prompt = {};
  Schedule schedule = Schedule::kEveryStep;
  std::uint32_t evict_unit = 1;  // tokens that go together: pages of so many neighbours
  std::uint32_t interval = 1;   // kEveryStep: while decoding, evicts after every so many steps
  // Is asked to evict nothing where a head holds just its budget, to put what it holds into an order of its own.
  bool orders_full_heads = false;
  Capacities capacities = Capacities::kBudget;
  // Budgets of the layers as shares of layers · k, from the first layer to the last (layer_budget()); empty: k each.
  std::vector<double> layer_shares = {};
  bool shares_by_depth = false;  // capacities() differs with the place of a layer among all of them
  bool streams_prompt = false;  // evicts after every prompt row
  bool merges = false;          // implements merge(), which is shown tensors; evict() is not
  // Implements select(): resident and read differ, and nothing is ever evicted. Logits that it observes are −∞ or not
  // where it does not read, weights are those of the exact attention, which takes the keys that it does not read.
  bool selects = false;
  // Above 0: implements add_keys(), and keeps of every page of so many tokens the least and the largest key of each
  // channel, in the cache's type. select() is then shown queries in place of logits.
  std::uint32_t page = 0;
  // Above 0: after the prompt the model repeats it, so many tokens at a time, before any layer evicts.
  std::uint32_t repeats = 0;
  std::uint32_t dense_layers = 0;  // with pages: the first layers, where everything is read and no bound is kept
  bool bound = false;           // not causal: replay only
  bool undoes_rotation = false;  // reads PolicyContext::rotation, to take queries as they were before it
  // Bytes of policy state for one slot of a storage head; read and written for each slot of an observed row.
  std::uint64_t state_bytes = 0;
  std::uint64_t state_read = 0;
  std::uint64_t state_written = 0;
  // Of one slot, read where victims are chosen, each time evict is asked. A moved slot's state is read and written
  // once.
  std::uint64_t evict_read = 0;
  double flops_per_slot = 0;        // of scoring, for each observed slot and query head
  double noise_flops_per_slot = 0;  // of draws, likewise
  double noise_flops_per_token = 0; // of draws, for each admitted token and query head of a storage head
  // State kept for each query head of the group; LayerPolicy::traits() has it added to state_bytes and state_read.
  std::uint64_t query_head_state = 0;
  // Sums for each query head that end with the prompt; LayerPolicy::traits() has them added to state_read and
  // state_written.
  std::uint64_t query_head_sums = 0;

  [[nodiscard]] HostNeeds host_needs() const;
  // While decoding, attention takes query and keys to stand where they lie among the tokens held (relocate_logits()).
  [[nodiscard]] bool slot_positions() const { return needs.has(HostNeed::kSlotPositions); }
  [[nodiscard]] bool one_set_per_layer() const { return scope != Scope::kHead; }
  // A bound that chooses anew at each row: what it does not read, it still holds.
  [[nodiscard]] bool keeps_all() const { return bound && selects; }
  // Whether one layer says nothing of what the others hold, even if all have the same attention.
  [[nodiscard]] bool differs_by_depth() const { return shares_by_depth || !layer_shares.empty(); }
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual void admit(HeadId head, SlotId slot, TokenPos position) = 0;
  // Where traits.page > 0: the tokens that the head holds, of which some came since the last call. The keys are read
  // where they are written, so that reading them is no traffic; bounds are.
  virtual void add_keys(HeadId head, std::span<const TokenPos> positions, HeadTensors& tensors);
  // Appends the slots that the row reads, ascending, for query head `g` of the group; rows carries logits over all
  // slots, or queries. Called for each g in turn, from 0 on. Rows are read once for the whole group.
  virtual void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read);
  virtual void observe(HeadId head, const AttentionRows& rows) = 0;
  // How many slots each storage head may hold after the row of `newest`, which may evict. `slots` comes with `budget`
  // in every head; 0 is read as 1.
  virtual void capacities(TokenPos newest, std::uint32_t budget, std::span<std::uint32_t> slots);
  // Where traits.scores_layer_first: called for every head over its budget before any of them evicts, and before
  // capacities(), where they have a say. Then it is this call that is shown tensors, and evict() is not.
  virtual void score_head(HeadId head, const EvictRequest& request);
  // Appends at least request.excess distinct occupied slots to `victims`, in any order.
  virtual void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) = 0;
  // Where traits.merges: after evict(), with the slots that go, ascending. Appends merges, which are done in this
  // order; each of the victims is in `from` of one at most, and no `to` is a victim.
  virtual void merge(HeadId head, const EvictRequest& request, std::span<const SlotId> victims,
                     std::vector<SlotMerge>& merges);
  // How far apart the scores are by which the last evict of this head chose between two slots: |a − b| / max(|a|, |b|).
  // Two engines may order scores within rounding of each other differently. Infinity: other things than scores decide.
  [[nodiscard]] virtual double score_gap(HeadId head, SlotId a, SlotId b) const;
  // Moves happen in the order given: what was in `from` is in `to` afterwards.
  virtual void move(HeadId head, std::span<const SlotMove> moves) = 0;

  // A copy that has seen what this one has, for another budget; null where that is more than its parameters and the
  // rows that it was shown, or where nobody asked for it yet.
  [[nodiscard]] virtual std::unique_ptr<EvictionPolicy> clone() const { return nullptr; }

  // Bytes of policy state that this object really walked so far, for the engine's own count of the scores traffic.
  [[nodiscard]] virtual std::uint64_t walked_state_bytes(HeadId head) const = 0;
  // Likewise elements of page bounds.
  [[nodiscard]] virtual std::uint64_t walked_page_elements(HeadId) const { return 0; }
};

// One parameter of a policy, for --help, docs and validation.
struct ParamInfo {
  std::string_view name;
  std::string_view values;    // "tokens | share of k", "A | B", …
  std::string_view fallback;  // the default, as text
  std::string_view help;
  bool by_rule = false;  // with another rule of the policy the default is another
};

// What policies.cpp lists.
struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one sentence
  std::string_view source;   // paper and code
  std::span<const ParamInfo> params;
  // Validates the parameters; throws Error (usage) naming policy, parameter, value and what is expected.
  PolicyTraits (*traits)(const PolicySpec& spec);
  std::unique_ptr<EvictionPolicy> (*make)(const PolicySpec& spec, const PolicyContext& context);
  bool takes_budget = true;
  // What these parameters do with k tokens that a user may not expect, in one sentence; empty: nothing. May be null.
  std::string (*advice)(const PolicySpec& spec, std::uint32_t k) = nullptr;
  // For an engine that keeps the scores itself. Null: only the policy object knows what goes.
  ScoreRecipe (*recipe)(const PolicySpec& spec) = nullptr;
};

// All policies, sorted by name.
std::span<const PolicyInfo> policy_table();
// "point: sentence" when its policy has an advice for a prompt of so many tokens, else empty.
std::string policy_advice(const PolicySpec& spec, std::uint32_t prompt);
// Why a policy of these traits does not evict from a prompt of so many tokens; empty: it does.
std::string refused_prompt(const PolicySpec& spec, const PolicyTraits& traits, std::uint32_t prompt);
std::string refused_prompt(const PolicySpec& spec, std::uint32_t prompt);
// The entry of a valid specification's policy.
const PolicyInfo& policy_info(std::string_view name);

}  // namespace kvroof
