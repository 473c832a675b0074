// The part of CudaBackend that runs prompts.
#include <algorithm>
#include <bit>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_tables.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/core/error.hpp"
#include "sim/policy/scores.hpp"

namespace kvroof::cuda {
namespace {

// The head's weights are read once for so many bytes of logits: 131 tokens with a vocabulary of 128k, about as many as
// tensor cores take to be what limits them. A host's copy of it is still small.
constexpr std::uint32_t kLogitBlockBytes = 64U << 20;
constexpr std::uint32_t kPromptBlock = 32;  // queries of a prompt whose rows are shown to the policy together

// The leading rows of a prompt that a policy does not look at.
std::uint32_t unseen_rows(const PolicyTraits& traits, std::uint32_t n) {
  if (traits.rows == RowNeed::kAll) return 0;
  return traits.rows == RowNeed::kLast ? n - std::min(n, traits.last_rows) : n;
}

// Of a query, from `first` on, and a token that it sees.
std::uint64_t visible_pairs(const PromptArguments& a, std::uint32_t first = 0) {
  std::uint64_t pairs = 0;
  for (std::uint32_t i = first; i < a.tokens; ++i) pairs += a.window > 0 ? std::min(a.window, i + 1) : i + 1;
  return pairs;
}

}  // namespace

void CudaBackend::attend_prompt(const AttentionInput& input) {
  Sequence& sequence = *active_[0];
  LayerState& state = sequence.layers[input.layer.value];
  const std::uint32_t n = sequence.prompt;
  const PolicyTraits& traits = state.policy.traits();
  if (traits.streams_prompt) return stream_prompt(input);
  const bool keeps_all = state.policy.keeps_prompt();
  const std::uint32_t storage_heads = state.policy.storage_heads();
  if (keeps_all || prompt_buffer_.capacity() < n) {
    prompt_buffer_ = keeps_all ? new_cache(sequence, state.policy) : prompt_cache(state.policy, n);
  }
  const DeviceCache* buffer = &prompt_buffer_;
  prepare(input, {&buffer, 1}, {}, true);
  record(input, 0);
  const bool shows_rows = traits.rows != RowNeed::kNone && !device_policy_;
  // Rows that the policy looks at go through the kernel of decode steps, which shows them, as do wide rows of integers.
  const std::uint32_t unseen = scores_prompt_at_once() ? n : unseen_rows(traits, n);
  const std::uint32_t apart = meets_prompt_at_once() || shape().latent() ? unseen : 0;
  const PromptArguments at_once = prompt_arguments(input, storage_heads);
  if (apart > 0) attend_prompt_at_once(at_once, input.layer);
  if (device_policy_ && device_policy_->keeps_scores()) score_prompt(at_once, input.layer);
  const std::uint32_t unshown = shows_rows ? unseen : n;
  state.policy.admit_first(unshown);
  for (std::uint32_t first = apart; first < n;) {
    const bool sees = first >= unseen;
    const std::uint32_t end = std::min(sees ? n : unseen, first + kPromptBlock);
    std::vector<Query> queries;
    for (std::uint32_t i = first; i < end; ++i) {
      const std::uint32_t window = state.policy.window();
      // Scores on the device lie by slot of the buffer; there the window is the kernel's to apply.
      const std::uint32_t length = window > 0 && shows_rows ? std::min(window, i + 1) : i + 1;
      queries.push_back({&sequence, i, buffer, i + 1 - length, std::vector(storage_heads, length), shows_rows});
    }
    attend(input, first, queries, sees, first == 0);
    first = end;
  }
  note_prompt_usage();
  const DeviceRows rows(stream_, format_, prompt_buffer_, n, input.queries, shape().heads, traits.tensors.queries);
  finish_row(sequence, input.layer, TokenPos(n - 1), rows, &prompt_buffer_);
  if (!device_policy_) return;
  const PolicyContext context = policy_context(model_, input.layer, sequence.id, n, sequence.requested_new_tokens,
                                               options_.seed, sequence.token_kinds);
  const auto held = static_cast<std::uint32_t>(state.policy.positions(HeadId(0)).size());
  state.schedule = SlotSchedule(*device_policy_, context, held);
}

// The policy evicts after every row of the prompt: each is a step of its own.
void CudaBackend::stream_prompt(const AttentionInput& input) {
  Sequence& sequence = *active_[0];
  LayerState& state = sequence.layers[input.layer.value];
  state.cache = new_cache(sequence, state.policy);
  note_prompt_usage();
  for (std::uint32_t i = 0; i < sequence.prompt; ++i) {
    attend_step(row_of(input, i, shape()), i);
  }
}

PromptArguments CudaBackend::prompt_arguments(const AttentionInput& input, std::uint32_t storage_heads) {
  const LayerRule& rule = model_.config.options.layers[input.layer.value];
  std::vector<CacheSlots> slots;
  prompt_buffer_.append_slots(slots);
  DeviceTables tables(stream_, prompt_table_);
  const std::size_t slots_at = tables.add(std::span<const CacheSlots>(slots));
  tables.send();
  PromptArguments a;
  a.slots = tables.at<CacheSlots>(slots_at);
  a.q = input.queries;
  a.key_row_bytes = format_.key_row_bytes();
  a.value_row_bytes = format_.value_row_bytes();
  a.tokens = input.tokens;
  a.heads = shape().heads;
  a.group = shape().heads / storage_heads;
  a.head_dim = shape().head_dim;
  a.value_dim = shape().v_head_dim;
  a.scale = rule.scale;
  a.softcap = rule.softcap;
  a.window = shape().window(input.layer.value);
  a.alibi = weights_->alibi;
  a.sinks = weights_->layer(input.layer).sinks;
  a.out = input.out;
  if (device_policy_ && device_policy_->keeps_scores()) {
    log_sums_.reserve(sizeof(float) * a.heads * a.tokens);
    a.log_sums = log_sums_.at<float>();
  }
  return a;
}

void CudaBackend::attend_prompt_at_once(const PromptArguments& a, LayerId layer) {
  // A tile of queries meets the rows from the first one's window up to its last one; the query heads of a group find
  // them in the cache of the chip.
  std::uint64_t rows = 0;
  const std::uint32_t queries = shape().latent() ? 1 : kPromptQueries;
  for (std::uint32_t first = 0; first < a.tokens; first += queries) {
    const std::uint32_t hidden = a.window > 0 && first >= a.window ? first + 1 - a.window : 0;
    rows += std::min(first + queries, a.tokens) - hidden;
  }
  DeclaredWork work = moved(Cause::kKvRead, rows * (a.heads / a.group) * row_bytes());
  work.bytes.add(Cause::kWeights, sink_bytes(layer));
  work.flops = attention_flops(visible_pairs(a) * (a.heads / a.group), a.group);
  const Launch launch(launches_, {"attention", layer_number(layer), Cause::kKvRead, work});
  run_prompt_attention(stream_, format_.type, a);
}

bool CudaBackend::meets_prompt_at_once() const {
  return !format_.has_scales() || std::max(shape().head_dim, shape().v_head_dim) <= kMostQuantisedPrompt;
}

// Sums and counts of weights need no row of them: the tensor cores make the products again, once more for a noisy
// softmax.
bool CudaBackend::scores_prompt_at_once() const {
  return device_policy_ && device_policy_->scores_prompt_at_once() && meets_prompt_at_once();
}

// Draws the noise of the prompt's tokens; where scores need no rows, makes them. State counts as it does everywhere:
// for each row that the policy observes.
void CudaBackend::score_prompt(const PromptArguments& a, LayerId layer) {
  const Sequence& sequence = *active_[0];
  PromptScoreArguments s;
  static_cast<ScoreRule&>(s) = score_rule(layer);
  s.rows = a;
  s.log_sums = a.log_sums;
  s.sequence = sequence.id;
  s.temperature = device_policy_->recipe.temperature.at(StepId(0), sequence.requested_new_tokens);
  const std::int32_t number = layer_number(layer);
  if (s.kind == ScoreKind::kNoisySum && s.noise == ScoreNoise::kPerToken) {
    const Launch launch(launches_, {"noise", number, Cause::kScores, {}});
    run_draw_prompt_noise(stream_, s);
  }
  if (!scores_prompt_at_once()) return;
  const std::uint64_t storage_heads = a.heads / a.group;
  DeclaredWork products = moved(Cause::kKvRead, storage_heads * a.tokens * format_.key_row_bytes());
  const std::uint32_t forgotten = s.kind == ScoreKind::kCounts ? a.tokens - std::min(a.tokens, s.history) : 0;
  products.flops = 2 * visible_pairs(a, forgotten) * a.heads * a.head_dim;
  if (s.kind == ScoreKind::kNoisySum) {
    const Launch launch(launches_, {"noisy_sums", number, Cause::kScores, products});
    run_prompt_noisy_sums(stream_, format_.type, s);
  }
  const PolicyTraits& traits = sequence.layers[layer.value].policy.traits();
  products.bytes.add(Cause::kScores, storage_heads * visible_pairs(a) * (traits.state_read + traits.state_written));
  const Launch launch(launches_, {"scores", number, Cause::kScores, products});
  run_prompt_column_sums(stream_, format_.type, s);
}

// Adds the rows of a block of queries to the scores beside the prompt's buffer.
void CudaBackend::observe_prompt(const AttentionInput& input, const AttentionPlan& plan,
                                 const AttentionArguments& attention, std::span<const Query> queries) {
  const DevicePolicy& policy = *device_policy_;
  const std::uint32_t window = shape().window(input.layer.value);
  const PolicyTraits& traits = queries[0].sequence->layers[input.layer.value].policy.traits();
  std::vector<StepRow> rows(queries.size());
  std::uint64_t slots = 0;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const std::uint32_t tokens = queries[i].position + 1;
    rows[i].length = queries[i].lengths[0];  // a prompt's are equal
    rows[i].sequence = queries[i].sequence->id;
    rows[i].temperature = policy.recipe.temperature.at(StepId(0), queries[i].sequence->requested_new_tokens);
    rows[i].threshold = 1.0F / static_cast<float>(tokens);
    slots += std::uint64_t{plan.storage_heads()} * (window > 0 ? std::min(tokens, window) : tokens);
  }
  DeviceTables tables(stream_, score_tables_);
  const std::size_t rows_at = tables.add(std::span<const StepRow>(rows));
  tables.send();
  const std::int32_t layer = layer_number(input.layer);
  ScoreArguments a = score_arguments(plan, attention, score_parts_);
  a.rows = tables.at<StepRow>(rows_at);
  a.first_query = queries[0].position;
  a.queries = static_cast<std::uint32_t>(queries.size());
  static_cast<ScoreRule&>(a) = score_rule(input.layer);
  if (a.kind == ScoreKind::kNoisySum) {
    const Launch launch(launches_, {"noisy_sums", layer, Cause::kScores, {}});
    run_noisy_sums(stream_, a);
  }
  const Launch launch(launches_, {"scores", layer, Cause::kScores,
                                  moved(Cause::kScores, slots * (traits.state_read + traits.state_written))});
  run_observe_prompt(stream_, a);
}

std::vector<std::uint32_t> CudaBackend::choose_lowest(LayerId layer, const DeviceCache& cache, ChooseArguments a,
                                                      std::uint64_t declared) {
  std::vector<CacheSlots> slots;
  cache.append_slots(slots);
  if (device_policy_->traits.one_set_per_layer()) slots.resize(1);
  DeviceTables tables(stream_, score_tables_);
  const std::size_t slots_at = tables.add(std::span<const CacheSlots>(slots));
  tables.send();
  std::vector<std::uint32_t> chosen(slots.size() * ((a.length + 31) / 32));
  score_parts_.reserve(chosen.size() * sizeof(std::uint32_t));
  static_cast<ScoreRule&>(a) = score_rule(layer);
  a.slots = tables.at<CacheSlots>(slots_at);
  a.heads = static_cast<std::uint32_t>(slots.size());
  a.chosen = score_parts_.at<std::uint32_t>();
  {
    const Launch launch(launches_, {"top_k", layer_number(layer), Cause::kScores, moved(Cause::kScores, declared)});
    run_choose_lowest(stream_, a);
  }
  copy_to_host(stream_, std::as_writable_bytes(std::span(chosen)), score_parts_.at());
  return chosen;
}

// What the policy's object chooses knows nothing of the prompt's rows: as many tokens go, but by the device's scores.
// The first head that asks has the answer made for all, of which each gives up as many.
void CudaBackend::review_prompt(LayerState& state, LayerId layer) {
  struct Answer {
    std::uint32_t count = 0, length = 0;
    std::vector<std::uint32_t> chosen;
  };
  const std::uint64_t read = state.policy.traits().evict_read;
  state.policy.set_review([this, layer, read, answer = Answer{}](HeadId head, std::span<const TokenPos> positions,
                                                                 std::vector<SlotId>& victims) mutable {
    const auto [oldest, newest] = std::minmax_element(positions.begin(), positions.end());
    check(newest->value - oldest->value + 1 == positions.size(), "a prompt's tokens are neighbours");
    const auto count = static_cast<std::uint32_t>(victims.size());
    const std::uint32_t length = newest->value + 1;
    if (answer.count != count || answer.length != length) {
      const std::uint32_t budget = device_policy_->budget.tokens(length, length);
      ChooseArguments a;
      a.length = length;
      a.first = oldest->value;
      a.end = Candidates{positions, *newest, device_policy_->recipe.recent.of(budget)}.first_recent();
      a.count = count;
      chosen_bytes_ = prompt_buffer_.heads() * positions.size() * read;
      answer = {count, length, choose_lowest(layer, prompt_buffer_, a, chosen_bytes_)};
    }
    victims.clear();
    const std::size_t asked = device_policy_->traits.one_set_per_layer() ? 0 : head.value;
    const std::size_t first = asked * ((length + 31) / 32);
    for (std::uint32_t s = 0; s < positions.size(); ++s) {  // a token of a prompt lies in the slot of its position
      if (is_chosen(answer.chosen, first, positions[s].value)) victims.emplace_back(s);
    }
  });
}

void CudaBackend::prompt_logits(std::uint32_t n, std::span<float> last, const LogitsSink& all) {
  if (!all) return forward_->logits(n - 1, last);
  std::vector<float> logits;
  const std::uint32_t block = std::max(1U, kLogitBlockBytes / (4 * shape().vocab));
  for (std::uint32_t first = 0; first < n; first += block) {
    logits.resize(std::size_t{std::min(block, n - first)} * shape().vocab);
    forward_->logits(first, logits);
    all(logits);
  }
  if (!last.empty()) std::copy(logits.end() - shape().vocab, logits.end(), last.begin());
}

void CudaBackend::run_prompt(std::span<const std::int64_t> ids, std::span<float> last, const LogitsSink& all) {
  const auto n = static_cast<std::uint32_t>(ids.size());
  std::vector<std::uint32_t> positions(n);
  for (std::uint32_t i = 0; i < n; ++i) positions[i] = i;
  const std::vector<std::uint8_t> use_long = use_long_rotary(model_.config.options, std::vector<std::uint32_t>(n, n));
  active_[0]->states = DeviceBuffer(held_state_floats(shape()) * sizeof(float));
  const std::vector<float*> states(n, active_[0]->states.at<float>());
  forward_->begin({ids, positions, use_long, states, true});
  forward_->run({[this](const AttentionInput& input) {
    if (interrupt_ != nullptr && interrupt_->load()) throw Interrupted{};
    attend_prompt(input);
  }});
  prompt_logits(n, last, all);
  check_device(stream_.problem, "launching kernels");
  count_experts();
  active_[0]->tokens = n;
  prompt_buffer_ = DeviceCache();
  peaks_.note(kv_usage());
}

void CudaBackend::drop_prompt(std::uint32_t sequence) {
  active_.clear();
  prompt_buffer_ = DeviceCache();
  release(sequence);
}

void CudaBackend::prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested_new_tokens,
                          std::span<float> last, const LogitsSink& all) {
  check(!ids.empty(), "a prompt has at least one token");
  const auto n = static_cast<std::uint32_t>(ids.size());
  peaks_.begin_prompt(kv_usage());
  active_ = {&add_sequence(sequence, n, requested_new_tokens)};
  note_kinds(model_, ids, 0, active_[0]->token_kinds);
  plan_.forget();  // buffers that it knows may grow
  launches_.set_sequence(static_cast<std::int32_t>(sequence));
  try {
    if (forward_ == nullptr) forward_ = new_forward();  // there was no room for it after a prompt that was refused
    run_prompt(ids, last, all);
  } catch (const OutOfDeviceMemory& refused) {
    forget_moves();
    Error error = refused_prompt(refused, *active_[0]);
    drop_prompt(sequence);
    // What was made for so long a prompt.
    for (DeviceBuffer* buffer : pass_buffers()) *buffer = DeviceBuffer();
    forward_.reset();  // leaves room for the new one
    try {
      forward_ = new_forward();
    } catch (const Error&) {  // somebody else has that room by now: what was refused first is what there is to say
    }
    throw error;
  } catch (...) {  // interrupted, or an Error of the device, of the recorder or of a sink
    forget_moves();
    drop_prompt(sequence);
    throw;
  }
}

}  // namespace kvroof::cuda
