// Decode steps of policies that live on the device.
#include <algorithm>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/core/error.hpp"
#include "sim/policy/scores.hpp"

namespace kvroof::cuda {
namespace {

ScoreKind kind_of(ScoreRecipe::Kind kind) {
  switch (kind) {
    case ScoreRecipe::Kind::kPositions:  // which has none: nothing looks at the rule
    case ScoreRecipe::Kind::kAttentionSum: return ScoreKind::kAttentionSum;
    case ScoreRecipe::Kind::kNoisySum: return ScoreKind::kNoisySum;
    case ScoreRecipe::Kind::kCounts: return ScoreKind::kCounts;
    case ScoreRecipe::Kind::kLastRow: return ScoreKind::kLastRow;
  }
  check(false, "every kind of score has kernels");
  return ScoreKind::kAttentionSum;
}

ScoreReduction reduction_of(GroupReduction reduction) {
  switch (reduction) {
    case GroupReduction::kSum: return ScoreReduction::kSum;
    case GroupReduction::kMean: return ScoreReduction::kMean;
    case GroupReduction::kMax: return ScoreReduction::kMax;
  }
  check(false, "kernels know every reduction of a group");
  return ScoreReduction::kSum;
}

ScoreNoise noise_of(NoiseMode noise) {
  switch (noise) {
    case NoiseMode::kNone: return ScoreNoise::kNone;
    case NoiseMode::kPerToken: return ScoreNoise::kPerToken;
    case NoiseMode::kPerQuery: return ScoreNoise::kPerQuery;
  }
  check(false, "kernels draw every noise");
  return ScoreNoise::kNone;
}

}  // namespace

ScoreRule CudaBackend::score_rule(LayerId layer) const {
  const ScoreRecipe& recipe = device_policy_->recipe;
  ScoreRule rule;
  rule.kind = kind_of(recipe.kind);
  rule.reduction = reduction_of(recipe.reduction);
  rule.noise = noise_of(recipe.noise);
  rule.counts_low = recipe.counts_low;
  rule.history = std::max(1U, recipe.history);
  rule.window = shape().window(layer.value);
  rule.layer = layer.value;
  rule.seed = options_.seed;
  return rule;
}

// Rows of every layer and sequence, the plan that serves them, and what each layer's launches will move.
void CudaBackend::admit_rows() {
  step_rows_.clear();
  step_work_.resize(shape().layers);
  std::vector<const DeviceCache*> caches;
  for (std::uint32_t layer = 0; layer < shape().layers; ++layer) {
    StepWork& work = step_work_[layer];
    work = {};
    work.append.bytes.add(Cause::kWeights, head_norm_bytes(LayerId(layer)));
    work.attention.bytes.add(Cause::kWeights, sink_bytes(LayerId(layer)));
    for (Sequence* sequence : active_) {
      LayerState& state = sequence->layers[layer];
      const PolicyTraits& traits = state.policy.traits();
      const std::uint64_t heads = state.policy.storage_heads();
      const StepRow row = state.schedule->admit(sequence->tokens);
      check(row.length <= state.cache.capacity(), "a cache has room for its budget and one token");
      work.attention.bytes.add(Cause::kKvRead, heads * row.length * row_bytes());
      work.attention.flops += attention_flops(heads * row.length, state.policy.group());
      work.append.bytes.add(Cause::kKvWrite, heads * row_bytes());
      if (device_policy_->observes()) {
        const bool chooses = state.schedule->over_budget();
        work.scores.bytes.add(Cause::kScores, heads * row.length * (traits.state_read + traits.state_written +
                                                                    (chooses ? traits.evict_read : 0)));
      }
      step_rows_.push_back(row);
      caches.push_back(&state.cache);
    }
  }
  if (active_ != planned_ || !plan_.serves(step_rows_)) {
    planned_ = active_;
    const LayerPolicy& policy = active_[0]->layers[0].policy;
    plan_.build({.layers = shape().layers,
                 .storage_heads = policy.storage_heads(),
                 .group = policy.group(),
                 .width = part_width(),
                 .blocks = attention_blocks(),
                 .slot_bytes = row_bytes(),
                 .scores = device_policy_->observes(),
                 .unit_heads = unit_heads()},
                caches, step_rows_);
  }
  for (std::uint32_t layer = 0; layer < shape().layers; ++layer) {
    if (!keeps_scores_in_attention(LayerId(layer))) continue;
    step_work_[layer].attention.bytes += step_work_[layer].scores.bytes;
  }
  copy_to_device(stream_, plan_.rows().at(), std::as_bytes(std::span(step_rows_)));
}

bool CudaBackend::keeps_scores_in_attention(LayerId layer) const {
  if (!device_policy_->observes()) return false;
  const StepLayer& planned = plan_.layer(layer);
  return scores_with_attention(score_rule(layer), planned.scores, planned.longest);
}

// Where the heads of a step go: each layer's launches say the same until the plan is built anew.
Append CudaBackend::append_on_device(const AttentionInput& input) {
  const StepLayer& layer = plan_.layer(input.layer);
  Append append{prepare_arguments(input), format_.type, step_work_[input.layer.value].append};
  append.heads.slots = layer.slots;
  append.heads.rows = layer.rows;
  return append;
}

void CudaBackend::attend_on_device(const AttentionInput& input) {
  const StepLayer& layer = plan_.layer(input.layer);
  const StepWork& work = step_work_[input.layer.value];
  const std::int32_t number = layer_number(input.layer);
  if (!input.appended) {
    const Append append = append_on_device(input);
    const Launch launch(launches_, {"append", number, Cause::kKvWrite, append.work});
    run_prepare(stream_, weights_->type(), append.cache, append.heads);
  }
  record(input, 0);
  AttentionArguments attention = layer.attention;
  set_model(attention, input, 0);
  attention.query = input.positions;
  ScoreArguments scores = layer.scores;
  scores.query = input.positions;
  static_cast<ScoreRule&>(scores) = score_rule(input.layer);
  const bool together = keeps_scores_in_attention(input.layer);
  {
    const Launch launch(launches_, {"attention", number, Cause::kKvRead, {}}, work.attention);
    if (together) return run_scored_attention(stream_, format_.type, ScoredAttentionArguments{attention, scores});
    run_decode_attention(stream_, format_.type, attention);
  }
  if (!device_policy_->observes()) return;
  if (scores.kind == ScoreKind::kNoisySum) {
    const Launch launch(launches_, {"noisy_sums", number, Cause::kScores, {}});
    run_noisy_sums(stream_, scores);
  }
  const Launch launch(launches_, {"scores", number, Cause::kScores, {}}, work.scores);
  run_update_scores(stream_, scores);
}

// A plan's steps are the same launches with the same arguments: what differs lies in memory. So they are captured once
// and made as one. A recorder copies rows between them, and has them one by one, as has an observer who asks for it.
void CudaBackend::launch_step() {
  const auto launches = [this] {
    forward_->run({[this](const AttentionInput& input) { attend_on_device(input); },
                   [this](const AttentionInput& input) { return append_on_device(input); }});
    forward_->predict();
  };
  StepPlan::StepGraph& graph = plan_.graph();
  const bool one_by_one = recorder_ != nullptr || launches_.one_by_one() || !stream_.graphs;
  if (one_by_one) return launches();
  if (!graph.loaded) {
    const std::string problem = forward_->library_linear().problem();
    launches();
    // Where the library fell out on the way, the next step has other kernels.
    graph.loaded = forward_->library_linear().problem() == problem;
    return;
  }
  // A device that is full has no room for a graph: then, and from then on, launches are made one by one.
  if (graph.launches.empty()) stream_.graphs = launches_.capture(graph, launches);
  stream_.graphs ? launches_.make(graph) : launches();
}

void CudaBackend::step_on_device(const PassTokens& tokens, const PassResult& result) {
  admit_rows();
  forward_->begin(tokens);
  launch_step();
  forward_->send(result);
  finish_rows();
  forward_->read(result);
}

// What the host learns of a step after it: the recorder is told what went.
void CudaBackend::finish_rows() {
  const std::uint32_t heads = active_[0]->layers[0].policy.storage_heads();
  std::vector<std::uint32_t> evicted;
  if (recorder_ != nullptr && device_policy_->observes()) {
    evicted.resize(step_rows_.size() * heads);
    copy_to_host(stream_, std::as_writable_bytes(std::span(evicted)), plan_.evicted());
  }
  for (std::uint32_t layer = 0; layer < shape().layers; ++layer) {
    for (std::size_t i = 0; i < active_.size(); ++i) {
      Sequence& sequence = *active_[i];
      LayerState& state = sequence.layers[layer];
      const StepId step = state.policy.step_of(TokenPos(sequence.tokens));
      for (std::uint32_t h = 0; recorder_ != nullptr && h < heads; ++h) {
        const std::uint32_t gone = device_policy_->observes()
                                       ? evicted[(layer * active_.size() + i) * heads + h]
                                       : state.schedule->evicted();
        if (gone != kNoToken) recorder_->eviction({sequence.id, step.value, layer, h, gone});
      }
      if (state.schedule->drops() > 0) drop_tokens(sequence, LayerId(layer));
    }
  }
  if (moves_.empty()) return;
  moves_.launch(-1, row_bytes());
  check_device(synchronize(stream_), "closing up a cache");  // a step is over when its last launch is
}

// Once in `drop` steps the device chooses among the tokens of heads over their budgets (the launch that kept their
// scores has said that these are read); the survivors close up.
void CudaBackend::drop_tokens(Sequence& sequence, LayerId layer) {
  LayerState& state = sequence.layers[layer.value];
  const TokenPos newest(sequence.tokens);
  const StepId step = state.policy.step_of(newest);
  const std::uint32_t recent = device_policy_->recipe.recent.of(state.schedule->budget(newest.value));
  ChooseArguments a;
  a.length = state.schedule->length();
  a.end = Candidates{{}, newest, recent}.first_recent();
  a.count = state.schedule->drops();
  const std::vector<std::uint32_t> chosen = choose_lowest(layer, state.cache, a, 0);
  std::uint32_t dropped = 0;
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    std::vector<SlotId> victims;
    for (std::uint32_t slot = 0; slot < a.length; ++slot) {
      if (is_chosen(chosen, h * std::size_t{(a.length + 31) / 32}, slot)) victims.emplace_back(slot);
    }
    if (recorder_ != nullptr) {
      std::vector<std::uint32_t> positions(a.length), evicted;
      copy_to_host(stream_, std::as_writable_bytes(std::span(positions)),
                   reinterpret_cast<const std::byte*>(state.cache.slots(h).positions));
      for (const SlotId victim : victims) evicted.push_back(positions[victim.value]);
      std::sort(evicted.begin(), evicted.end());
      for (const std::uint32_t gone : evicted) recorder_->eviction({sequence.id, step.value, layer.value, h, gone});
    }
    const std::vector<SlotMove> moves = filling_moves(victims, a.length);
    moves_.add(state.cache, state.cache, h, moves);
    moves_.add_state_bytes(2 * moves.size() * state.policy.traits().state_bytes);
    dropped = static_cast<std::uint32_t>(victims.size());
  }
  state.schedule->dropped(dropped);
}

}  // namespace kvroof::cuda
