#include "kernels/engine/kv_bookkeeping.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "kernels/engine/token_kinds.hpp"
#include "sim/attention/attention.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

// The reference back end serves all of it, repetitions with a RepeatingBackend around it; the others refuse by name
// what they do not.
constexpr HostNeeds kServedByEngine = {HostNeed::kSelecting, HostNeed::kSlotPositions, HostNeed::kMerging,
                                       HostNeed::kTokenKinds, HostNeed::kOutputProjection, HostNeed::kRepetition};

LayerRotation rotation_of(const ModelConfig& config, std::uint32_t layer, std::uint32_t prompt) {
  if (config.options.rotary.empty()) return {};
  const RotaryRule& rule = config.options.rotary[config.options.layers[layer].rotary];
  if (rule.dims == 0) return {};
  return {&rule, config.shape.latent_rank, rule.takes_long(prompt)};
}

}  // namespace

void check_runnable(const PolicySpec& policy) {
  const HostNeeds asked = policy_info(policy.name).traits(policy).host_needs();
  if (asked.has(HostNeed::kAllRows) || asked.has(HostNeed::kFuture)) {
    throw usage_error(
        fmt::format("policy {} looks ahead and is a bound: `kvroof replay` knows it, run and record cannot follow it",
                    policy.name));
  }
  if (asked.has(HostNeed::kWholeModel)) {
    throw usage_error(fmt::format(
        "policy {} decides for all layers at once, after the last: `kvroof replay` knows it, run and record evict "
        "layer by layer",
        policy.text()));
  }
  if (const auto what = unserved(policy, kServedByEngine)) {
    throw usage_error(fmt::format("run and record do not know {}", *what));
  }
}

std::uint32_t most_tokens(const ModelShape& shape, std::uint32_t prompt, std::uint32_t requested_new_tokens) {
  return static_cast<std::uint32_t>(
      std::min(std::uint64_t{prompt} + requested_new_tokens, std::uint64_t{std::max(shape.max_positions, prompt)}));
}

PolicyContext policy_context(const Model& model, LayerId layer, std::uint32_t sequence, std::uint32_t prompt,
                             std::uint32_t requested_new_tokens, std::uint64_t seed,
                             const std::vector<TokenKind>& kinds) {
  const ModelShape& shape = model.config.shape;
  PolicyContext context;
  context.sequence = sequence;
  context.layer = layer;
  context.layers = shape.layers;
  context.head_dim = shape.head_dim;
  context.prompt = prompt;
  context.requested_new_tokens = requested_new_tokens;
  context.window = shape.window(layer.value);
  context.seed = seed;
  context.scale = model.config.options.layers[layer.value].scale;
  context.rotation = rotation_of(model.config, layer.value, prompt);
  if (!shape.latent()) context.output_projection = model.layer(layer).o.matrix.view();
  if (!model.token_kinds.empty()) context.token_kinds = &kinds;
  return context;
}

void note_kinds(const Model& model, std::span<const std::int64_t> ids, std::uint32_t first,
                std::vector<TokenKind>& kinds) {
  if (model.token_kinds.empty()) return;
  kinds.resize(first);
  append_kinds(model.token_kinds, ids, kinds);
}

std::vector<SlotMove> packing_moves(std::span<const TokenPos> survivors) {
  std::vector<SlotMove> moves(survivors.size());
  for (std::uint32_t slot = 0; slot < moves.size(); ++slot) moves[slot] = {SlotId(survivors[slot].value), SlotId(slot)};
  return moves;
}

std::size_t moves_at_once(std::span<const SlotMove> moves) {
  std::unordered_set<std::uint32_t> read, written;
  std::size_t count = 0;
  for (const SlotMove& m : moves) {
    const auto [from, to] = std::pair{m.from.value, m.to.value};
    if (written.contains(from) || written.contains(to) || read.contains(to)) break;
    read.insert(from);
    written.insert(to);
    ++count;
  }
  return count;
}

void show_rows(LayerPolicy& policy, HeadId head, TokenPos query, std::span<float> logits, std::uint32_t oldest,
               std::span<const float> sinks, std::vector<float>& weights) {
  const std::span<const TokenPos> positions = policy.positions(head);
  const std::size_t slots = positions.size();
  check(logits.size() == policy.group() * slots, "show_rows: a row of every query head over every slot");
  for (std::uint32_t g = 0; oldest > 0 && g < policy.group(); ++g) {
    const auto row = logits.subspan(g * slots, slots);
    std::rotate(row.begin(), row.end() - oldest, row.end());
  }
  AttentionRows rows;
  rows.step = policy.step_of(query);
  rows.query = query;
  rows.positions = positions;
  rows.group = policy.group();
  rows.logits = logits.data();
  if (policy.traits().needs_weights) {
    weights.resize(logits.size());
    for (std::uint32_t g = 0; g < rows.group; ++g) {
      const std::size_t query_head = std::size_t{head.value} * rows.group + g;
      softmax(logits.subspan(g * slots, slots), std::span(weights).subspan(g * slots, slots),
              sinks.empty() ? std::nullopt : AttentionSink(sinks[query_head]));
    }
    rows.weights = weights.data();
  }
  policy.observe(head, rows);
}

void record_evictions(Recorder& recorder, const LayerPolicy& policy, std::uint32_t sequence, LayerId layer, HeadId head,
                      TokenPos position) {
  for (const TokenPos evicted : policy.eviction(head).evicted) {
    recorder.eviction({sequence, policy.step_of(position).value, layer.value, head.value, evicted.value});
  }
}

std::vector<std::uint8_t> use_long_rotary(const ModelOptions& options, std::span<const std::uint32_t> prompts) {
  if (std::ranges::all_of(options.rotary, [](const RotaryRule& rule) { return rule.long_from == 0; })) return {};
  std::vector<std::uint8_t> use;
  for (const RotaryRule& rule : options.rotary) {
    for (const std::uint32_t prompt : prompts) use.push_back(rule.takes_long(prompt) ? 1 : 0);
  }
  return use;
}

}  // namespace kvroof
