#include "kernels/cuda/device_forward.hpp"

#include <algorithm>

#include "kernels/cuda/device_tables.hpp"
#include "sim/core/error.hpp"

namespace kvroof::cuda {
namespace {

ActivationMode activation_of(Activation f) {
  switch (f) {
    case Activation::kSilu: return ActivationMode::kSilu;
    case Activation::kGelu: return ActivationMode::kGelu;
    case Activation::kGeluTanh: return ActivationMode::kGeluTanh;
    case Activation::kClampedSwiglu: return ActivationMode::kClampedSwiglu;
    case Activation::kRelu: return ActivationMode::kRelu;
    case Activation::kRelu2: return ActivationMode::kRelu2;
    case Activation::kSigmoid: return ActivationMode::kSigmoid;
  }
  check(false, "kernels know every activation");
  return ActivationMode::kNone;
}

// Of a token: id, place of its states, position and row in the position table. Behind those of all tokens lies for each
// rotary rule and token whether it takes long frequencies, where a rule has them.
constexpr std::size_t kInputBytes = sizeof(std::int64_t) + sizeof(float*) + 2 * sizeof(std::uint32_t);

std::size_t projection_width(const ModelShape& shape) {
  if (shape.latent()) {
    const std::size_t of_head = std::size_t{shape.latent_nope_dim} + shape.latent_rope_dim + shape.latent_v_dim;
    return shape.heads * of_head + shape.latent_q_rank + shape.head_dim;
  }
  const std::size_t attention =
      std::size_t{shape.heads} * shape.head_dim + std::size_t{shape.kv_heads} * (shape.head_dim + shape.v_head_dim);
  return std::max(attention, state_row_floats(shape));
}

std::uint64_t matrix_bytes(const DeviceMatrix& w) { return std::uint64_t{2} * w.rows * w.cols; }

// What a product moves. `first`: of the launches that norm the same input with the same weights, which count once.
DeclaredWork work_of(const LinearArguments& a, bool first) {
  std::uint64_t vectors = (a.bias != nullptr ? a.w.rows : 0) + (a.up_bias != nullptr ? a.w.rows : 0);
  if (first) vectors += (a.norm_scale != nullptr ? a.w.cols : 0) + (a.norm_bias != nullptr ? a.w.cols : 0);
  const std::uint64_t heads = std::max(1U, a.heads.count);
  const std::uint64_t matrices = heads * (matrix_bytes(a.w) + matrix_bytes(a.up));
  DeclaredWork work = moved(Cause::kWeights, matrices + 2 * vectors);
  work.bytes.add(Cause::kActivations,
                 sizeof(float) * a.tokens * heads * (a.w.cols + std::uint64_t{a.w.rows} * (a.add ? 2 : 1)));
  work.flops = matrices * a.tokens;  // two for each element of two bytes
  return work;
}

}  // namespace

DeviceForward::DeviceForward(Stream& stream, Launches& launches, const DeviceModel& model, CublasLt* library,
                             LinearBy linear, unsigned multiprocessors)
    : stream_(stream),
      launches_(launches),
      model_(model),
      library_linear_(stream, library, linear),
      split_k_(stream, multiprocessors) {
  const ModelShape& shape = model.host().config.shape;
  const std::vector<unsigned> zeros(shape.heads + std::size_t{2} * shape.kv_heads);
  DeviceTables done(stream, heads_done_);
  done.add(std::span<const unsigned>(zeros));
  done.send();
}

NormMode DeviceForward::norm_mode() const {
  return model_.host().config.shape.norm == NormKind::kRms ? NormMode::kRms : NormMode::kLayer;
}

LinearArguments DeviceForward::with_norm(const float* x, const DeviceNorm& norm) const {
  LinearArguments a;
  a.x = x;
  a.tokens = tokens_;
  if (norm.scale == nullptr) return a;
  a.norm = norm_mode();
  a.norm_scale = norm.scale;
  a.norm_bias = norm.bias;
  a.norm_eps = model_.host().config.options.norm_eps;
  a.norm_offset = model_.host().config.options.norm_offset;
  return a;
}

void DeviceForward::launch_linear(const char* operation, LinearArguments& a, bool first) {
  const Launch launch(launches_, {operation, layer_, Cause::kWeights, work_of(a, first)});
  if (library_linear_.run(model_.type(), a)) return;
  split_k_.cut(model_.type(), a);
  run_linear(stream_, model_.type(), a);
}

void DeviceForward::linear(const char* operation, const float* x, const DeviceNorm& norm, const DeviceLinear& w,
                           float* out, bool add, float factor) {
  LinearArguments a = with_norm(x, norm);
  a.w = w.matrix;
  a.bias = w.bias;
  a.add = add;
  a.factor = factor;
  a.out = out;
  launch_linear(operation, a);
}

void DeviceForward::norm_rows(const float* x, const DeviceNorm& norm, float* out, bool add) {
  const ModelConfig& config = model_.host().config;
  const std::uint32_t hidden = config.shape.hidden;
  DeclaredWork work = moved(Cause::kWeights, std::uint64_t{2} * hidden * (norm.bias != nullptr ? 2 : 1));
  work.bytes.add(Cause::kActivations, sizeof(float) * tokens_ * hidden * (add ? 3 : 2));
  const Launch launch(launches_, {"norm", layer_, Cause::kActivations, work});
  run_norm(stream_, model_.type(),
           {x, tokens_, hidden, norm_mode(), norm.scale, norm.bias, config.options.norm_eps,
            config.options.norm_offset, add, out, config.options.residual_scale});
}

std::uint64_t DeviceForward::token_bytes() const {
  const ModelShape& shape = model_.host().config.shape;
  std::uint64_t floats = 2ULL * shape.hidden + projection_width(shape) +
                         std::uint64_t{shape.heads} * (shape.head_dim + shape.v_head_dim) +
                         (shape.attention_gate ? std::uint64_t{shape.heads} * shape.v_head_dim : 0) +
                         std::max(shape.ffn, shape.shared_expert_ffn);
  const std::vector<RotaryRule>& rules = model_.host().config.options.rotary;
  for (const RotaryRule& rule : rules) floats += rule.dims;
  if (model_.project_in.rows > 0) floats += shape.embedding_width;
  if (shape.experts > 0) {  // a pair's rows, expert, weight, place and, if it is alone in it, tile
    floats += shape.experts + 1 + shape.experts_per_token * (shape.expert_ffn + shape.hidden + 6ULL);
  }
  return floats * sizeof(float) + kInputBytes + rules.size();
}

void DeviceForward::begin(const PassTokens& tokens) {
  const ModelConfig& config = model_.host().config;
  const ModelShape& shape = config.shape;
  tokens_ = static_cast<std::uint32_t>(tokens.ids.size());
  const std::size_t n = tokens_;
  if (SplitKMemory::serves(tokens_)) split_k_.reserve();
  x_.reserve(n * shape.hidden * sizeof(float));
  block_.reserve(n * shape.hidden * sizeof(float));
  projections_.reserve(n * projection_width(shape) * sizeof(float));
  queries_.reserve(n * shape.heads * shape.head_dim * sizeof(float));
  attended_.reserve(n * shape.heads * shape.v_head_dim * sizeof(float));
  if (shape.attention_gate) gates_.reserve(n * shape.heads * shape.v_head_dim * sizeof(float));
  activated_.reserve(n * std::max(shape.ffn, shape.shared_expert_ffn) * sizeof(float));
  if (model_.project_in.rows > 0) embedded_.reserve(n * shape.embedding_width * sizeof(float));
  if (shape.experts > 0) reserve_experts();
  // ids, states, positions, rows of the position table, one behind the other.
  std::vector<std::uint32_t> rows(tokens.positions.begin(), tokens.positions.end());
  for (std::uint32_t& row : rows) row += config.options.position_offset;
  sent_inputs_.clear();
  for (const auto& part : {std::as_bytes(tokens.ids), std::as_bytes(tokens.states), std::as_bytes(tokens.positions),
                           std::as_bytes(std::span(rows)), std::as_bytes(tokens.use_long)}) {
    sent_inputs_.insert(sent_inputs_.end(), part.begin(), part.end());
  }
  inputs_.reserve(sent_inputs_.size());
  copy_to_device(stream_, inputs_.at(), sent_inputs_);
  states_ = {inputs_.at<float*>(n * 8), tokens.prompt};
  positions_ = inputs_.at<std::uint32_t>(n * 16);
  knows_long_ = !tokens.use_long.empty();
  std::size_t cos_sin_floats = 0;
  for (const RotaryRule& rule : config.options.rotary) cos_sin_floats += n * rule.dims;
  cos_sin_.reserve(cos_sin_floats * sizeof(float));
}

void DeviceForward::embed_rows(const std::byte* table, const std::byte* positions, std::uint32_t width, float* out) {
  const std::size_t n = tokens_;
  const unsigned tables = (table != nullptr ? 1 : 0) + (positions != nullptr ? 1 : 0);
  DeclaredWork work = moved(Cause::kWeights, 2 * n * width * tables);
  work.bytes.add(Cause::kActivations, sizeof(float) * n * width);
  const Launch launch(launches_, {"embed", layer_, Cause::kWeights, work});
  run_embed(stream_, model_.type(),
            {table, positions, inputs_.at<std::int64_t>(), inputs_.at<std::uint32_t>(n * 20), tokens_, width,
             model_.host().config.options.embedding_scale, out});
}

void DeviceForward::embed() {
  const ModelShape& shape = model_.host().config.shape;
  float* x = x_.at<float>();
  if (model_.project_in.rows == 0) {
    embed_rows(model_.embedding.data, model_.positions, shape.hidden, x);
  } else {
    embed_rows(model_.embedding.data, nullptr, shape.embedding_width, embedded_.at<float>());
    if (model_.positions != nullptr) embed_rows(nullptr, model_.positions, shape.hidden, x);
    linear("project_in", embedded_.at<float>(), {}, {model_.project_in, nullptr}, x, model_.positions != nullptr);
  }
  if (model_.embedding_norm.scale != nullptr) norm_rows(x, model_.embedding_norm, x, false);
}

void DeviceForward::make_cos_sin() {
  const auto& rules = model_.host().config.options.rotary;
  rule_cos_sin_.clear();
  std::size_t at = 0;
  for (std::size_t r = 0; r < rules.size(); ++r) {
    const bool has_long = rules[r].long_from > 0 && knows_long_;
    rule_cos_sin_.push_back(cos_sin_.at<float>(at));
    if (rules[r].dims == 0) continue;
    const Launch launch(launches_, {"rotary", layer_, Cause::kActivations, {}});
    run_cos_sin(stream_, {positions_, has_long ? inputs_.at<std::uint8_t>(tokens_ * (kInputBytes + r)) : nullptr,
                        model_.frequencies[r], model_.long_frequencies[r], tokens_, rules[r].dims / 2,
                        rules[r].magnitude, cos_sin_.at<float>(at)});
    at += std::size_t{tokens_} * rules[r].dims * sizeof(float);
  }
}

// activated = f(gate(norm(x))) · up(norm(x)), or f(up(norm(x))) of a plain MLP.
LinearArguments DeviceForward::mlp_arguments(const DeviceMlp& w, const float* x, const DeviceNorm& norm,
                                             float* activated) const {
  const bool gated = w.gate.matrix.rows > 0;
  LinearArguments a = with_norm(x, norm);
  a.w = gated ? w.gate.matrix : w.up.matrix;
  a.bias = gated ? w.gate.bias : w.up.bias;
  if (gated) {
    a.up = w.up.matrix;
    a.up_bias = w.up.bias;
  }
  a.activation = activation_of(model_.host().config.options.activation);
  a.out = activated;
  return a;
}

void DeviceForward::mlp(const DeviceMlp& w, const float* x, const DeviceNorm& norm, float* activated, bool first) {
  LinearArguments a = mlp_arguments(w, x, norm, activated);
  launch_linear(a.up.rows > 0 ? "gate_up" : "up", a, first);
}

void DeviceForward::feed_forward(const DeviceLayer& w, const float* x, const DeviceNorm& norm,
                                 const DeviceNorm& out_norm) {
  if (w.experts.router.matrix.rows == 0) {
    mlp(w.mlp, x, norm, activated_.at<float>());
    return join("down", activated_.at<float>(), w.mlp.down, out_norm);
  }
  if (out_norm.scale == nullptr) return pass_experts(w.experts, x, norm, x_.at<float>(), true);
  pass_experts(w.experts, x, norm, block_.at<float>(), false);
  norm_rows(block_.at<float>(), out_norm, x_.at<float>(), true);
}

void DeviceForward::join(const char* operation, const float* x, const DeviceLinear& w, const DeviceNorm& out_norm) {
  const float factor = model_.host().config.options.residual_scale;
  if (out_norm.scale == nullptr) return linear(operation, x, {}, w, x_.at<float>(), true, factor);
  linear(operation, x, {}, w, block_.at<float>(), false);
  norm_rows(block_.at<float>(), out_norm, x_.at<float>(), true);
}

bool DeviceForward::appends_at_once(const LinearArguments& a) const {
  const ModelShape& shape = model_.host().config.shape;
  return a.tokens <= kMostAppended && shape.qk_norm != QkNorm::kWhole && !library_linear_.wins(a) &&
         std::max(shape.head_dim, shape.v_head_dim) <= kMostAppendedDim;
}

// The rows of q, k and v, one after the other.
void DeviceForward::project(const DeviceLinear& w, const float* x, const DeviceNorm& norm, const Attention& attention,
                            AttentionInput& input) {
  const ModelShape& shape = model_.host().config.shape;
  float* rows = projections_.at<float>();
  input.q = {rows, w.matrix.rows, shape.head_dim};
  input.k = {rows + shape.heads * shape.head_dim, w.matrix.rows, shape.head_dim};
  input.v = {input.k.x + shape.kv_heads * shape.head_dim, w.matrix.rows, shape.v_head_dim};
  LinearArguments a = with_norm(x, norm);
  a.w = w.matrix;
  a.bias = w.bias;
  a.out = rows;
  if (!attention.append || !appends_at_once(a)) return launch_linear("qkv", a);
  const Append append = attention.append(input);
  DeclaredWork work = work_of(a, true);
  work.bytes += append.work.bytes;
  const Launch launch(launches_, {"qkv_append", layer_, Cause::kWeights, work});
  split_k_.cut(model_.type(), a);
  run_linear_append(stream_, model_.type(), {a, append.heads, append.cache, heads_done_.at<unsigned>()});
  input.appended = true;
}

AttentionInput row_of(const AttentionInput& input, std::uint32_t t, const ModelShape& shape) {
  AttentionInput row = input;
  row.tokens = 1;
  for (HeadFloats* heads : {&row.q, &row.k, &row.v}) heads->x += std::size_t{t} * heads->row;
  row.queries += std::size_t{t} * shape.heads * shape.head_dim;
  row.positions += t;
  if (row.cos_sin != nullptr) row.cos_sin += std::size_t{t} * row.rotary_pairs * 2;
  row.out += std::size_t{t} * shape.heads * shape.v_head_dim;
  return row;
}

const float* DeviceForward::attend(LayerId id, const DeviceLayer& w, const float* x, const DeviceNorm& norm,
                                   const Attention& attention) {
  const ModelOptions& options = model_.host().config.options;
  AttentionInput input;
  input.layer = id;
  input.tokens = tokens_;
  input.queries = queries_.at<float>();
  input.positions = positions_;
  input.out = attended_.at<float>();
  if (!options.rotary.empty()) {
    input.cos_sin = rule_cos_sin_[options.layers[id.value].rotary];
    input.rotary_pairs = options.rotary[options.layers[id.value].rotary].dims / 2;
  }
  if (model_.host().config.shape.latent()) {
    project_latent(w.latent, x, norm, input);
    attention.attend(input);
    return latent_output(w.latent);
  }
  project(w.qkv, x, norm, attention, input);
  attention.attend(input);
  if (w.gate.matrix.rows > 0) gate_attended(w.gate, x, norm);
  return attended_.at<float>();
}

void DeviceForward::block(std::uint32_t index, const Attention& attention) {
  const ModelConfig& config = model_.host().config;
  const DeviceLayer& w = model_.layers[index];
  const bool norm_after = config.options.residual == ResidualOrder::kNormAfterAdd;
  float* x = x_.at<float>();
  const DeviceNorm before = norm_after ? DeviceNorm{} : w.attention_norm;
  if (!config.attends(index)) {
    join("output", pass_states(index - attended_layers_, w.state, x, before), w.state.out, {});
    if (config.has_mlp(index)) feed_forward(w, x, w.mlp_norm, {});
    return;
  }
  const float* attended = attend(LayerId(attended_layers_++), w, x, before, attention);
  if (config.options.residual == ResidualOrder::kParallel) {
    // The MLP reads what attention read, before either is added.
    const bool own_norm = w.mlp_norm.scale != nullptr;
    mlp(w.mlp, x, own_norm ? w.mlp_norm : w.attention_norm, activated_.at<float>(), own_norm);
    join("output", attended, w.o, {});
    join("down", activated_.at<float>(), w.mlp.down, {});
    return;
  }
  join("output", attended, w.o, w.attention_out_norm);
  if (!config.has_mlp(index)) return;
  if (norm_after) norm_rows(x, w.attention_norm, x, false);
  feed_forward(w, x, norm_after ? DeviceNorm{} : w.mlp_norm, w.mlp_out_norm);
  if (norm_after) norm_rows(x, w.mlp_norm, x, false);
}

void DeviceForward::run(const Attention& attention) {
  layer_ = -1;  // a pass may have been left within a layer
  attended_layers_ = 0;
  embed();
  make_cos_sin();
  for (std::uint32_t i = 0; i < model_.layers.size(); ++i) {
    layer_ = static_cast<std::int32_t>(i);
    block(i, attention);
  }
  layer_ = -1;
}

void DeviceForward::project(std::uint32_t first, std::uint32_t rows) {
  const ModelConfig& config = model_.host().config;
  if (rows == 0) return;
  check(first + rows <= tokens_, "logits of tokens of the pass");
  logits_.reserve(std::size_t{rows} * config.shape.vocab * sizeof(float));
  LinearArguments a = with_norm(x_.at<float>() + std::size_t{first} * config.shape.hidden, model_.final_norm);
  a.tokens = rows;
  if (model_.project_out.rows > 0) {
    a.w = model_.project_out;
    a.out = embedded_.at<float>();
    launch_linear("project_out", a);
    a = LinearArguments{};
    a.x = embedded_.at<float>();
    a.tokens = rows;
  }
  a.w = model_.head;
  a.bias = model_.head_bias;
  a.factor = config.options.logit_scale;
  a.softcap = config.options.logit_softcap;
  a.out = logits_.at<float>();
  launch_linear("head", a);
}

void DeviceForward::predict() {
  project(0, tokens_);
  const std::uint32_t vocab = model_.host().config.shape.vocab;
  choices_.reserve(tokens_ * sizeof(DeviceChoice));
  const DeclaredWork work = moved(Cause::kActivations, sizeof(float) * std::uint64_t{tokens_} * vocab);
  const Launch launch(launches_, {"choose", layer_, Cause::kActivations, work});
  run_choose_token(stream_, {logits_.at<float>(), tokens_, vocab, choices_.at<DeviceChoice>()});
}

void DeviceForward::send(const PassResult& result) {
  sent_logits_.send(stream_, logits_.at(), result.logits.size_bytes());
  sent_choices_.send(stream_, choices_.at(), result.choices.size() * sizeof(DeviceChoice));
}

void DeviceForward::read(const PassResult& result) {
  sent_logits_.read(stream_, std::as_writable_bytes(result.logits));
  std::vector<DeviceChoice> chosen(result.choices.size());
  sent_choices_.read(stream_, std::as_writable_bytes(std::span(chosen)));
  for (std::size_t i = 0; i < chosen.size(); ++i) result.choices[i] = {chosen[i].token, chosen[i].logprob};
}

}  // namespace kvroof::cuda
