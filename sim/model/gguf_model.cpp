// GGUF metadata and tensors → ModelShape, parameters and bytes by type.
#include <algorithm>
#include <charconv>
#include <limits>

#include "sim/model/gguf.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMostSize = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kMostSlidingLayers = 4096;  // a file that says more is refused later

// Sizes under the architecture's own keys; the first thing that is wrong is remembered.
class Keys {
 public:
  Keys(const GgufHeader& header, std::string arch) : header_(header), arch_(std::move(arch)) {}

  [[nodiscard]] bool has(std::string_view key) const { return header_.values.contains(arch_ + "." + std::string(key)); }

  // A list, or nothing where the key has none.
  [[nodiscard]] const GgufList* list(std::string_view key) const {
    const auto found = header_.values.find(arch_ + "." + std::string(key));
    return found == header_.values.end() ? nullptr : std::get_if<GgufList>(&found->second);
  }

  // A size; a list of sizes, one for each layer, has to hold the same one throughout.
  std::uint32_t size(std::string_view key, std::optional<std::uint32_t> fallback = {}) {
    const std::string name = arch_ + "." + std::string(key);
    const auto found = header_.values.find(name);
    if (found == header_.values.end()) {
      if (!fallback) fail(fmt::format("the metadata key '{}' is missing", name));
      return fallback.value_or(1);
    }
    if (std::find(read_.begin(), read_.end(), name) == read_.end()) read_.push_back(name);
    const GgufValue& value = found->second;
    if (const auto* u = std::get_if<std::uint64_t>(&value)) return checked(name, *u);
    if (const auto* i = std::get_if<std::int64_t>(&value)) {
      return checked(name, *i < 0 ? kMostSize + 1 : static_cast<std::uint64_t>(*i));
    }
    if (const auto* list = std::get_if<GgufList>(&value); list != nullptr && !list->integers.empty()) {
      const auto& all = list->integers;
      if (std::any_of(all.begin(), all.end(), [&](std::int64_t i) { return i != all.front(); })) {
        fail(fmt::format("'{}' differs between layers, which a shape cannot express", name));
        return 1;
      }
      return checked(name, all.front() < 0 ? kMostSize + 1 : static_cast<std::uint64_t>(all.front()));
    }
    fail(fmt::format("'{}' is no size", name));
    return 1;
  }
  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  // Those of sizes that there are, in the order in which they were asked for.
  [[nodiscard]] const std::vector<std::string>& read() const { return read_; }

 private:
  std::uint32_t checked(const std::string& name, std::uint64_t value) {
    if (value > kMostSize) fail(fmt::format("'{}' is no size of a model", name));
    return static_cast<std::uint32_t>(std::min(value, kMostSize));
  }

  const GgufHeader& header_;
  std::string arch_;
  std::string problem_;
  std::vector<std::string> read_;
};

std::string text_of(const GgufHeader& header, std::string_view key) {
  const auto found = header.values.find(key);
  const auto* text = found == header.values.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text == nullptr ? std::string() : *text;
}

std::uint32_t rows_of(const GgufTensor* tensor) {
  if (tensor == nullptr || tensor->dims.size() < 2) return 0;
  return static_cast<std::uint32_t>(std::min(tensor->dims[1], kMostSize));
}

std::uint32_t vocabulary(const GgufHeader& header, Keys& keys) {
  if (const std::uint32_t rows = rows_of(header.find("token_embd.weight")); rows > 0) return rows;
  const auto tokens = header.values.find("tokenizer.ggml.tokens");
  if (tokens != header.values.end()) {
    if (const auto* list = std::get_if<GgufList>(&tokens->second)) {
      return static_cast<std::uint32_t>(std::min(list->count, kMostSize));
    }
  }
  return keys.size("vocab_size");
}

void set_attention(const GgufHeader& header, Keys& keys, ModelShape& s) {
  s.heads = keys.size("attention.head_count");
  s.kv_heads = keys.size("attention.head_count_kv", s.heads);
  s.head_dim = keys.size("attention.key_length", s.heads > 0 ? s.hidden / s.heads : 0);
  s.v_head_dim = keys.size("attention.value_length", s.head_dim);
  s.qkv_bias = header.find("blk.0.attn_q.bias") != nullptr || header.find("blk.0.attn_qkv.bias") != nullptr;
  s.out_bias = header.find("blk.0.attn_output.bias") != nullptr;
  s.attention_sinks = header.find("blk.0.attn_sinks.weight") != nullptr;
  if (const GgufTensor* norm = header.find("blk.0.attn_q_norm.weight")) {
    s.qk_norm = norm->elements == s.head_dim ? QkNorm::kHead
                : norm->dims.size() > 1      ? QkNorm::kEachHead
                                             : QkNorm::kWhole;
  }
  for (const char* of_states : {"ssm.state_size", "ssm.conv_kernel", "shortconv.l_cache", "kda.head_dim"}) {
    if (!keys.has(of_states)) continue;
    keys.fail("layers with a state in a GGUF file are not supported; the Hugging Face folder of the model is");
  }
  if (keys.has("attention.kv_lora_rank")) {
    keys.fail("latent attention in a GGUF file is not supported; the Hugging Face folder of the model is");
  }
}

// Which layers slide, where a file says the window alone: in the code of llama.cpp's models (set_swa_pattern). Of
// `period` layers one sees everything; 0: none does.
struct WindowRule {
  std::string_view architecture;
  std::uint32_t period;
  bool whole_first;      // the first of them does, not the last
  bool unturned;         // and knows no positions
  std::uint32_t window;  // of files that say none
};
constexpr std::array<WindowRule, 12> kWindowRules = {{{"llama", 0, false, false, 0},
                                                      {"phi3", 0, false, false, 0},
                                                      {"starcoder2", 0, false, false, 0},
                                                      {"gemma2", 2, false, false, 4096},
                                                      {"gpt-oss", 2, false, false, 0},
                                                      {"olmo2", 4, false, false, 0},  // and OLMo 3
                                                      {"cohere2", 4, false, true, 0},
                                                      {"exaone4", 4, false, true, 0},
                                                      {"afmoe", 4, false, true, 0},
                                                      {"smallthinker", 4, true, true, 0},
                                                      {"gemma3", 6, false, false, 0},
                                                      // Chunks of so many tokens, counted as windows.
                                                      {"llama4", 4, false, true, 8192}}};

// Whether each layer slides, by the file's own list or period, else by the rule; nothing where there is neither.
std::vector<bool> sliding_layers(Keys& keys, const WindowRule* rule, std::uint32_t layers) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  if (const GgufList* list = keys.list(kPattern)) {
    std::vector<bool> slides;
    for (const std::int64_t layer : list->integers) slides.push_back(layer != 0);
    if (slides.size() < layers) {
      keys.fail(fmt::format("'{}' says of {} layers whether they slide, and there are {}", kPattern, slides.size(),
                            layers));
    }
    slides.resize(layers);
    return slides;
  }
  if (rule == nullptr && !keys.has(kPattern)) return {};
  const std::uint32_t period = keys.size(kPattern, rule == nullptr ? 0 : rule->period);
  const bool whole_first = rule != nullptr && rule->whole_first;
  std::vector<bool> slides;
  for (std::uint32_t i = 0; i < layers; ++i) {
    slides.push_back(period == 0 || (whole_first ? i % period != 0 : i % period + 1 < period));
  }
  return slides;
}

void set_windows(Keys& keys, GgufModel& model) {
  ModelShape& s = model.shape;
  const auto* known = std::find_if(kWindowRules.begin(), kWindowRules.end(),
                                   [&](const WindowRule& rule) { return rule.architecture == s.family; });
  const WindowRule* rule = known == kWindowRules.end() ? nullptr : known;
  const std::uint32_t window = keys.size("attention.sliding_window", rule == nullptr ? 0 : rule->window);
  if (window == 0 || s.layers > kMostSlidingLayers) return;
  const std::vector<bool> slides = sliding_layers(keys, rule, s.layers);
  if (slides.empty()) {
    model.unknown_windows = fmt::format("which layers of '{}' slide over {} tokens is not known: the cache is counted "
                                        "as if none did", s.family, window);
    return;
  }
  for (std::uint32_t i = 0; i < s.layers; ++i) {
    s.layer_windows.push_back(slides[i] ? window : 0);
    if (rule != nullptr && rule->unturned && !slides[i]) s.unturned_layers.push_back(i);
  }
}

void set_position(const GgufHeader& header, const Keys& keys, ModelShape& s) {
  static constexpr std::array<std::string_view, 5> kAdjacent = {"gptj", "command-r", "cohere2", "chatglm", "codegen"};
  if (const std::uint32_t rows = rows_of(header.find("position_embd.weight")); rows > 0) {
    s.position = PositionScheme::kLearned;
    s.position_rows = rows;
  } else if (s.family == "bloom" || keys.has("attention.max_alibi_bias")) {
    s.position = PositionScheme::kAlibi;
  } else if (std::find(kAdjacent.begin(), kAdjacent.end(), s.family) != kAdjacent.end()) {
    s.position = PositionScheme::kRotaryAdjacent;
  }
}

// Llama 4 and ERNIE 4.5 have experts in every so many layers, which are counted as the last ones. A shared expert is as
// wide as its matrix: what files say of it differs between architectures (its width, how many there are, or nothing).
// Gives the first layer with experts.
std::uint32_t set_experts(const GgufHeader& header, Keys& keys, ModelShape& s) {
  const std::uint32_t leading = keys.size("leading_dense_block_count", 0);
  const std::uint32_t step = std::max(keys.size("interleave_moe_layer_step", 1), 1U);
  const std::uint32_t first = (leading / step + 1) * step - 1;
  s.dense_layers = step == 1 ? leading : s.layers - (s.layers / step - std::min(leading, s.layers) / step);
  s.expert_ffn = keys.size("expert_feed_forward_length", s.ffn);
  const auto part = [&](std::string_view name) { return header.find(fmt::format("blk.{}.{}", first, name)); };
  s.shared_expert_ffn = rows_of(part("ffn_up_shexp.weight"));
  s.shared_expert_gate = part("ffn_gate_inp_shexp.weight") != nullptr;
  s.router_logit_bias = part("ffn_gate_inp.bias") != nullptr;
  s.router_bias = part("exp_probs_b.bias") != nullptr;
  return first;
}

void set_mlp(const GgufHeader& header, Keys& keys, ModelShape& s) {
  s.experts = keys.size("expert_count", 0);
  s.experts_per_token = keys.size("expert_used_count", 0);
  const bool gated_tensor = std::any_of(header.tensors.begin(), header.tensors.end(), [](const GgufTensor& t) {
    return t.name.find(".ffn_gate") != std::string::npos;
  });
  s.ffn = keys.size("feed_forward_length");
  const std::uint32_t first = s.experts > 0 ? set_experts(header, keys, s) : 0;
  // Phi-3 and others fuse gate and up: twice as many rows.
  const bool fused = rows_of(header.find("blk.0.ffn_up.weight")) == std::uint64_t{s.ffn} * 2;
  s.mlp = gated_tensor || fused ? MlpKind::kGated : MlpKind::kPlain;
  s.mlp_bias = header.find("blk.0.ffn_up.bias") != nullptr ||
               header.find(fmt::format("blk.{}.ffn_up_exps.bias", first)) != nullptr;
}

void set_norms(const GgufHeader& header, const Keys& keys, ModelShape& s) {
  s.norm = keys.has("attention.layer_norm_rms_epsilon") ? NormKind::kRms : NormKind::kLayer;
  s.norms_per_layer = 0;
  for (const GgufTensor& t : header.tensors) {
    const bool of_q_or_k = t.name.find("_q_norm") != std::string::npos || t.name.find("_k_norm") != std::string::npos;
    if (t.name.starts_with("blk.0.") && t.name.ends_with("norm.weight") && !of_q_or_k) ++s.norms_per_layer;
  }
  s.norm_bias = header.find("output_norm.bias") != nullptr;
  s.embedding_norm = header.find("token_embd_norm.weight") != nullptr;
  s.final_norm = header.find("output_norm.weight") != nullptr;
}

// The number of a tensor's layer; nothing outside layers.
std::optional<std::uint32_t> layer_of(const GgufTensor& tensor) {
  constexpr std::string_view kLayer = "blk.";
  if (!tensor.name.starts_with(kLayer)) return {};
  std::uint32_t layer = 0;
  const char* begin = tensor.name.data() + kLayer.size();
  const auto [end, error] = std::from_chars(begin, tensor.name.data() + tensor.name.size(), layer);
  return error == std::errc() && end != begin ? std::optional(layer) : std::nullopt;
}

// Behind the last layer lie those that draft tokens, which are no part of the model.
GgufHeader without_drafts(GgufHeader header, std::uint32_t layers) {
  std::erase_if(header.tensors, [&](const GgufTensor& t) { return layer_of(t).value_or(0) >= layers; });
  return header;
}

// Kinds of tensors that no size describes, each once.
std::vector<std::string> undescribed_kinds(const GgufHeader& header) {
  static constexpr std::array<std::string_view, 25> kDescribed = {
      "token_embd",   "position_embd",    "output",        "rope_freqs",     "rope_factors_long",  "rope_factors_short",
      "attn_q",       "attn_k",           "attn_v",        "attn_qkv",       "attn_output",        "attn_sinks",
      "ffn_gate",     "ffn_up",           "ffn_down",      "ffn_gate_exps",  "ffn_up_exps",        "ffn_down_exps",
      "ffn_gate_inp", "ffn_gate_up_exps", "ffn_up_shexp",  "ffn_gate_shexp", "ffn_gate_inp_shexp", "ffn_down_shexp",
      "exp_probs_b"};
  std::vector<std::string> kinds;
  for (const GgufTensor& tensor : header.tensors) {
    const std::size_t begin = layer_of(tensor) ? tensor.name.find('.', 4) + 1 : 0;
    const std::size_t end = std::min(tensor.name.rfind('.'), tensor.name.size());
    if (end <= begin) continue;
    std::string kind = tensor.name.substr(begin, end - begin);
    const bool described =
        kind.ends_with("norm") || std::find(kDescribed.begin(), kDescribed.end(), kind) != kDescribed.end();
    if (!described && std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(std::move(kind));
  }
  return kinds;
}

void count_weights(const GgufHeader& header, GgufModel& model) {
  for (const GgufTensor& tensor : header.tensors) {
    if (!tensor.name.starts_with("rope_")) model.parameters += tensor.elements;
    model.bytes += tensor.bytes;
    auto of_type = std::find_if(model.types.begin(), model.types.end(),
                                [&](const auto& t) { return t.name == tensor.type->name; });
    if (of_type == model.types.end()) of_type = model.types.insert(of_type, {tensor.type->name, 0, 0});
    ++of_type->tensors;
    of_type->bytes += tensor.bytes;
  }
  if (model.types.empty()) return;  // all of them draft
  std::stable_sort(model.types.begin(), model.types.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  const auto type = parse_dtype(model.types.front().name);
  model.quantised = type != DType::kF32 && type != DType::kF16 && type != DType::kBF16;
  model.shape.weight_type = model.quantised ? DType::kF16 : *type;
}

// Names of general.file_type, the mixture that llama.cpp's quantize tool was asked for (LLAMA_FTYPE of llama.h).
struct FileType {
  std::uint64_t id;
  std::string_view name;
};
constexpr std::array<FileType, 30> kFileTypes = {
    {{2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},     {8, "Q5_0"},    {9, "Q5_1"},    {10, "Q2_K"},   {11, "Q3_K_S"},
     {12, "Q3_K_M"}, {13, "Q3_K_L"}, {14, "Q4_K_S"},  {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"}, {18, "Q6_K"},
     {19, "IQ2_XXS"}, {20, "IQ2_XS"}, {21, "Q2_K_S"}, {22, "IQ3_XS"}, {23, "IQ3_XXS"}, {24, "IQ1_S"}, {25, "IQ4_NL"},
     {26, "IQ3_S"},  {27, "IQ3_M"},  {28, "IQ2_S"},   {29, "IQ2_M"},  {30, "IQ4_XS"}, {31, "IQ1_M"},  {36, "TQ1_0"},
     {37, "TQ2_0"},  {38, "mxfp4"}}};

std::string_view format_name(const GgufHeader& header, const GgufModel& model) {
  const auto found = header.values.find("general.file_type");
  if (found != header.values.end()) {
    for (const FileType& type : kFileTypes) {
      if (found->second == GgufValue(type.id)) return type.name;
    }
  }
  return model.types.front().name;
}

// Bits of a parameter of each part. What stays in 32 bits of itself is no part (exact_parameters()).
StoredFormat stored_format(const GgufHeader& header, const GgufModel& model) {
  struct Part {
    double bytes = 0, elements = 0;
    [[nodiscard]] double bits() const { return elements > 0 ? bytes * 8 / elements : 0; }
  } layers, experts, head, embedding;
  for (const GgufTensor& tensor : header.tensors) {
    const auto has = [&](std::string_view word) { return tensor.name.find(word) != std::string::npos; };
    if (tensor.name.starts_with("rope_") || has("attn_sinks") || has("exp_probs_b")) continue;
    Part& part = has("_exps.")                                                           ? experts
                 : tensor.name.starts_with("output.")                                    ? head
                 : tensor.name.starts_with("token_embd.") || tensor.name.starts_with("position_embd.") ? embedding
                                                                                          : layers;
    part.bytes += static_cast<double>(tensor.bytes);
    part.elements += static_cast<double>(tensor.elements);
  }
  const Part& read_last = model.shape.tied_head ? embedding : head;
  return {format_name(header, model), layers.bits(), experts.elements > 0 ? experts.bits() : layers.bits(),
          read_last.bits(), embedding.bits()};
}

}  // namespace

std::uint64_t split_count(const GgufHeader& header) {
  const auto split = header.values.find("split.count");
  const auto* count = split == header.values.end() ? nullptr : std::get_if<std::uint64_t>(&split->second);
  return count == nullptr ? 1 : *count;
}

Result<GgufModel> gguf_model(const GgufHeader& file) {
  const std::string arch = text_of(file, "general.architecture");
  if (arch.empty()) return failure("the metadata key 'general.architecture' is missing");
  if (file.tensors.empty()) return failure("it holds no tensors: a vocabulary alone is no model");
  if (split_count(file) > 1) return failure("a part of a split model");
  Keys keys(file, arch);
  GgufModel model;
  ModelShape& s = model.shape;
  s.name = text_of(file, "general.name");
  s.family = arch;
  s.layers = keys.size("block_count");
  const std::uint32_t drafts = std::min(keys.size("nextn_predict_layers", 0), s.layers);
  s.layers -= drafts;
  const GgufHeader header = drafts > 0 ? without_drafts(file, s.layers) : file;
  s.hidden = keys.size("embedding_length");
  s.embedding_width = s.hidden;
  s.max_positions = keys.size("context_length");
  s.vocab = vocabulary(header, keys);
  s.tied_head = header.find("output.weight") == nullptr;
  s.head_bias = header.find("output.bias") != nullptr;
  set_attention(header, keys, s);
  set_windows(keys, model);
  set_position(header, keys, s);
  set_mlp(header, keys, s);
  set_norms(header, keys, s);
  count_weights(header, model);
  if (model.quantised) model.stored = stored_format(header, model);
  if (!keys.problem().empty()) return Failure{keys.problem()};
  const std::string problem = shape_problem(s);
  if (!problem.empty()) return failure("architecture '{}': {}", arch, problem);
  model.keys = keys.read();
  model.undescribed = undescribed_kinds(header);
  return model;
}

}  // namespace kvroof
