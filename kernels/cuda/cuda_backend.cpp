#include "kernels/cuda/cuda_backend.hpp"

#include <algorithm>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/device_problem.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/core/error.hpp"

namespace kvroof::cuda {

CudaBackend::CudaBackend(const Model& model, CudaBackendOptions options)
    : model_(model),
      options_(std::move(options)),
      format_{options_.quantised.value_or(options_.kv_type == DType::kBF16 ? Stored::kBF16 : Stored::kF16),
              shape().head_dim, shape().v_head_dim, 0, shape().latent()} {
  check_runnable(options_.policy);
  if (const auto what = cuda_policy_problem(options_.policy)) {
    throw usage_error(fmt::format("the CUDA back end does not run {}", *what))
        .note("--backend fast or --backend reference does; kvroof replay tells what it keeps of any trace");
  }
  check(options_.kv_type == DType::kBF16 || options_.kv_type == DType::kF16, "a cache of 16-bit rows");
  if (options_.fused) device_policy_ = device_policy(options_.policy, shape());
  if (device_policy_) {
    const bool alone = device_policy_->traits.unit == StorageUnit::kQueryHead;
    format_.state_columns = device_policy_->state_columns(alone ? 1 : shape().heads / shape().kv_heads);
  }
  moves_.set_format(format_, device_policy_ && device_policy_->keeps_state() ? format_.state_columns : 0);
  if (const char* why = find_device(device_)) throw Error(device_problem(device_, why), ExitCode::kNeedsDevice);
  check_device(open_stream(stream_), "opening a stream");
  opened_.reset(&stream_);
  load_library();
  try {
    weights_ = std::make_unique<DeviceModel>(stream_, model_, options_.progress);
    forward_ = new_forward();
  } catch (const OutOfDeviceMemory& refused) {
    throw refused_load(refused);
  }
  try {
    launch_reserve_ = DeviceBuffer(launch_reserve());
  } catch (const OutOfDeviceMemory&) {  // prompts will be refused with the sizes that fit
  }
}

void CudaBackend::load_library() {
  if (options_.linear == LinearBy::kOwn) return;
  auto loaded = CublasLt::load();
  if (loaded) {
    library_ = std::move(loaded).value();
  } else if (options_.linear == LinearBy::kCublasLt) {
    throw Error("--linear cublaslt: " + loaded.error());
  } else {
    no_library_ = loaded.error();
  }
}

LinearFacts CudaBackend::linear_facts() const {
  if (forward_ == nullptr) return {};  // after a prompt for which there was no memory
  const LibraryLinear& linear = forward_->library_linear();
  if (library_ == nullptr) return {"own", linear.missed() ? no_library_ : std::string()};
  return {library_->served() ? "cublaslt " + library_->version() : "own", linear.problem()};
}

CudaBackend::~CudaBackend() = default;

CudaBackend::Sequence& CudaBackend::add_sequence(std::uint32_t id, std::uint32_t prompt,
                                                 std::uint32_t requested_new_tokens) {
  check(!sequences_.contains(id), "a sequence is prefilled once");
  std::map<std::uint32_t, Sequence> made;  // joins the others when its policies are: any of them may refuse the prompt
  Sequence& sequence = made[id];
  sequence.id = id;
  sequence.prompt = prompt;
  sequence.requested_new_tokens = requested_new_tokens;
  sequence.most_tokens = most_tokens(shape(), prompt, requested_new_tokens);
  sequence.layers.reserve(shape().layers);
  for (std::uint32_t layer = 0; layer < shape().layers; ++layer) {
    const PolicyContext context = policy_context(model_, LayerId(layer), id, prompt, requested_new_tokens,
                                                 options_.seed, sequence.token_kinds);
    sequence.layers.push_back({LayerPolicy(options_.policy, context, shape().heads, shape().kv_heads), {}, {}});
  }
  sequences_.merge(made);
  return sequence;
}

DeviceCache CudaBackend::new_cache(const Sequence& sequence, const LayerPolicy& policy) const {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t h = 0; h < policy.storage_heads(); ++h) {
    slots.push_back(policy.most_rows(HeadId(h), sequence.most_tokens));
  }
  return {format_, slots};
}

DeviceCache CudaBackend::prompt_cache(const LayerPolicy& policy, std::uint32_t tokens) const {
  return {format_, std::vector<std::uint32_t>(policy.storage_heads(), tokens)};
}

void CudaBackend::set_recorder(Recorder* recorder) {
  if (recorder != nullptr && format_.has_scales()) {
    throw usage_error("a quantised KV cache cannot be recorded: a trace holds rows of f32, f16 or bf16");
  }
  recorder_ = recorder;
}

void CudaBackend::release(std::uint32_t sequence) {
  sequences_.erase(sequence);
  plan_.forget();
}

void CudaBackend::set_model(AttentionArguments& a, const AttentionInput& input, std::uint32_t first_token) const {
  const LayerRule& rule = model_.config.options.layers[input.layer.value];
  a.key_row_bytes = format_.key_row_bytes();
  a.value_row_bytes = format_.value_row_bytes();
  a.q = input.queries + std::size_t{first_token} * shape().heads * shape().head_dim;
  a.heads = shape().heads;
  a.head_dim = shape().head_dim;
  a.value_dim = shape().v_head_dim;
  a.scale = rule.scale;
  a.softcap = rule.softcap;
  a.window = shape().window(input.layer.value);
  a.alibi = weights_->alibi;
  a.sinks = weights_->layer(input.layer).sinks;
  a.out = input.out + std::size_t{first_token} * shape().heads * shape().v_head_dim;
}

// A product with each row of k and one with each row of v, for every query head that reads it.
std::uint64_t CudaBackend::attention_flops(std::uint64_t rows, std::uint32_t group) const {
  return 2 * rows * group * (shape().head_dim + shape().v_head_dim);
}

void CudaBackend::attend(const AttentionInput& input, std::uint32_t first_token, std::span<const Query> queries,
                         bool shows, bool first) {
  const std::size_t layer = input.layer.value;
  const LayerPolicy& policy = queries[0].sequence->layers[layer].policy;
  AttentionPlan plan(policy.storage_heads(), policy.group(), unit_heads());
  std::vector<CacheSlots> slots;
  for (const Query& query : queries) {
    slots.clear();
    query.cache->append_slots(slots, query.first);
    plan.add(slots, query.position, query.lengths);
  }
  plan.cut(attention_blocks(), part_width(), row_bytes());
  const std::size_t row_floats = shows ? plan.logit_floats() : 0;
  rows_.reserve(row_floats * sizeof(float));
  if (shows) plan.place_logits(rows_.at<float>());
  AttentionArguments a = plan.arguments(stream_, tables_, parts_, part_width());
  set_model(a, input, first_token);
  {
    DeclaredWork work = moved(Cause::kKvRead, plan.rows() * row_bytes());
    if (first) work.bytes.add(Cause::kWeights, sink_bytes(input.layer));
    work.flops = attention_flops(plan.rows(), policy.group());
    const Launch launch(launches_, {"attention", layer_number(input.layer), Cause::kKvRead, work});
    run_decode_attention(stream_, format_.type, a);
  }
  if (!shows) return;
  if (device_policy_) return observe_prompt(input, plan, a, queries);
  std::vector<float> logits(row_floats);
  copy_to_host(stream_, std::as_writable_bytes(std::span(logits)), rows_.at());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    LayerPolicy& own = queries[i].sequence->layers[layer].policy;
    const TokenPos position(queries[i].position);
    plan.for_rows(i, logits, [&](std::uint32_t head, std::span<float> rows, std::uint32_t length) {
      const bool admits = queries[i].admits;
      if (admits) own.admit(HeadId(head), position);
      show_rows(own, HeadId(head), position, rows, admits ? (position.value + 1) % length : 0,
                model_.layer(input.layer).attention_sinks(), row_weights_);
    });
  }
}

// One new token of each active sequence, `offset` tokens after those stored before the call.
void CudaBackend::attend_step(const AttentionInput& input, std::uint32_t offset) {
  const std::size_t layer = input.layer.value;
  std::vector<const DeviceCache*> caches;
  std::vector<std::uint32_t> slot_of;
  std::vector<Query> queries;
  for (Sequence* sequence : active_) {
    LayerState& state = sequence->layers[layer];
    const std::uint32_t position = sequence->tokens + offset;
    Query& query = queries.emplace_back(Query{sequence, position, &state.cache, 0, {}});
    for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
      const std::uint32_t slot = state.policy.admit(HeadId(h), TokenPos(position)).value;
      if (slot >= state.cache.capacity(h)) grow(state, input.layer, h, slot + slot / 2 + 1);
      slot_of.push_back(slot);
      query.lengths.push_back(static_cast<std::uint32_t>(state.policy.positions(HeadId(h)).size()));
    }
    caches.push_back(&state.cache);
  }
  prepare(input, caches, slot_of, offset == 0);
  record(input, offset);
  const bool shows = queries[0].sequence->layers[layer].policy.traits().rows != RowNeed::kNone;
  attend(input, 0, queries, shows, offset == 0);
  for (Sequence* sequence : active_) {
    const DeviceRows cached(stream_, format_, sequence->layers[layer].cache);
    finish_row(*sequence, input.layer, TokenPos(sequence->tokens + offset), cached, nullptr);
  }
}

// A policy that gives a head more than was known: its rows move to larger memory.
void CudaBackend::grow(LayerState& state, LayerId layer, std::uint32_t head, std::uint32_t slots) {
  std::vector<std::uint32_t> capacities;
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    capacities.push_back(h == head ? slots : state.cache.capacity(h));
  }
  DeviceCache larger(format_, capacities);
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    std::vector<SlotMove> all(state.cache.capacity(h));  // a head's hole may lie anywhere
    for (std::uint32_t slot = 0; slot < all.size(); ++slot) all[slot] = {SlotId(slot), SlotId(slot)};
    moves_.add(state.cache, larger, h, all);
  }
  moves_.launch(layer_number(layer), 0);  // memory is made, nothing is evicted
  state.cache = std::move(larger);
}

void CudaBackend::forget_moves() {
  moves_.forget();
  chosen_bytes_ = 0;
  static_cast<void>(synchronize(stream_));  // what it would say is less than that memory was refused
}

void CudaBackend::finish_row(Sequence& sequence, LayerId layer, TokenPos position, const DeviceRows& rows,
                             DeviceCache* prompt_buffer) {
  LayerState& state = sequence.layers[layer.value];
  if (device_policy_ && device_policy_->keeps_scores()) review_prompt(state, layer);
  state.policy.finish_row(position, &rows);
  const bool packs = prompt_buffer != nullptr && state.policy.packed_prompt();
  if (packs) {
    state.cache = new_cache(sequence, state.policy);
    note_prompt_usage();
  }
  std::vector<std::span<const SlotMove>> moves(state.policy.storage_heads());
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    if (recorder_ != nullptr) record_evictions(*recorder_, state.policy, sequence.id, layer, HeadId(h), position);
    if (packs) {
      const std::span<const TokenPos> held = state.policy.positions(HeadId(h));
      std::vector<TokenPos> survivors(held.begin(), held.end());
      if (device_policy_) std::sort(survivors.begin(), survivors.end());
      moves_.add(*prompt_buffer, state.cache, h, packing_moves(survivors));
    } else {
      moves[h] = state.policy.eviction(HeadId(h)).moves;
    }
  }
  // What the launch that chose did not read of the state moves with the rows, where the state is the device's.
  std::uint64_t walked = state.policy.take_walked_state_bytes();
  walked -= std::min(walked, std::exchange(chosen_bytes_, 0));
  if (device_policy_ && !moves_.empty()) moves_.add_state_bytes(std::exchange(walked, 0));
  moves_.launch(layer_number(layer), row_bytes());
  moves_.launch_in_order(state.cache, layer_number(layer), row_bytes(), moves);
  if (prompt_buffer != nullptr && !packs) state.cache = std::exchange(*prompt_buffer, DeviceCache());
  launches_.count(Cause::kScores, walked + state.policy.take_read_elements() * bits_of_stored(format_.type) / 8);
}

void CudaBackend::decode(std::span<const DecodeEntry> batch, std::span<float> logits) { step(batch, {logits}); }

bool CudaBackend::decode_greedily(std::span<const DecodeEntry> batch, std::span<TokenChoice> choices) {
  step(batch, {{}, choices});
  return true;
}

void CudaBackend::step(std::span<const DecodeEntry> batch, const PassResult& result) {
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> positions, prompts;
  std::vector<float*> states;
  active_.clear();
  for (const DecodeEntry& entry : batch) {
    active_.push_back(&sequences_.at(entry.sequence));
    ids.push_back(entry.token);
    note_kinds(model_, {&entry.token, 1}, active_.back()->tokens, active_.back()->token_kinds);
    positions.push_back(active_.back()->tokens);
    prompts.push_back(active_.back()->prompt);
    states.push_back(active_.back()->states.at<float>());
  }
  const std::vector<std::uint8_t> use_long = use_long_rotary(model_.config.options, prompts);
  const PassTokens tokens{ids, positions, use_long, states};
  launch_reserve_ = DeviceBuffer();
  try {
    if (forward_ == nullptr) forward_ = new_forward();
    launches_.set_sequence(active_.size() == 1 ? static_cast<std::int32_t>(active_[0]->id) : -1);
    device_policy_ ? step_on_device(tokens, result) : step_by_rows(tokens, result);
  } catch (const OutOfDeviceMemory& refused) {
    plan_.forget();
    forget_moves();
    throw refused_step(refused);
  }
  check_device(stream_.problem, "launching kernels");
  count_experts();
  for (Sequence* sequence : active_) ++sequence->tokens;
  peaks_.note(kv_usage());
}

// After a pass: how many experts it took.
void CudaBackend::count_experts() {
  const DeviceForward::ExpertPasses passes = forward_->read_expert_passes();
  if (passes.experts == 0) return;
  launches_.count(Cause::kWeights, passes.undeclared_bytes);
  if (recorder_ != nullptr) recorder_->experts(passes.experts);
}

void CudaBackend::step_by_rows(const PassTokens& tokens, const PassResult& result) {
  forward_->begin(tokens);
  forward_->run({[this](const AttentionInput& input) { attend_step(input, 0); }});
  forward_->predict();
  forward_->send(result);
  forward_->read(result);
}

KvUsage CudaBackend::usage_of(const Sequence& sequence) const {
  KvUsage usage;
  for (const LayerState& state : sequence.layers) {
    const std::uint64_t rows = state.schedule ? std::uint64_t{state.schedule->held()} * state.policy.storage_heads()
                                              : state.policy.rows_held();
    usage.resident_bytes += rows * row_bytes();
    usage.allocated_bytes += state.cache.bytes();
  }
  usage.state_bytes = sequence.states.bytes();
  return usage;
}

KvUsage CudaBackend::kv_usage() const {
  KvUsage usage;
  usage.allocated_bytes = prompt_buffer_.bytes();
  for (const auto& [id, sequence] : sequences_) usage += usage_of(sequence);
  peaks_.fill(usage);
  return usage;
}

void CudaBackend::note_prompt_usage() {
  KvUsage usage = usage_of(*active_[0]);
  usage.allocated_bytes += prompt_buffer_.bytes();
  peaks_.note_prompt(usage);
}

ByteCounters CudaBackend::take_counters() { return launches_.take_counters(); }

}  // namespace kvroof::cuda
