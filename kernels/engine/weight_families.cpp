#include "kernels/engine/weight_families.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace kvroof {
namespace {

constexpr std::array<std::string_view, 2> kBackbone = {"backbone.", "model."};
constexpr std::array<std::string_view, 1> kGptNeox = {"gpt_neox."};
constexpr std::array<std::string_view, 1> kModel = {"model."};
constexpr std::array<std::string_view, 1> kTransformer = {"transformer."};
// Of the language model within one that takes pictures or sounds as well. The longest first: names are cut at the
// first that fits.
constexpr std::array<std::string_view, 5> kTextPart = {"language_model.model.", "model.language_model.",
                                                       "model.text_model.", "language_model.", "model."};
// How names of its other parts begin, without these.
constexpr std::array<std::string_view, 11> kOtherParts = {
    "audio_tower.", "connector.",             "image_newline", "image_tower.",  "mlp1.",
    "mm_projector.", "multi_modal_projector.", "video_tower.",  "vision_model.", "vision_tower.", "visual."};

constexpr std::array kFamilies = {
    WeightFamily{"arcee", kModel, bind_llama},
    WeightFamily{"bloom", kTransformer, bind_bloom},
    WeightFamily{"cohere", kModel, bind_cohere},
    WeightFamily{"cohere2", kModel, bind_cohere},
    WeightFamily{"cwm", kModel, bind_llama},
    WeightFamily{"deepseek_v2", kModel, bind_deepseek_v2},
    WeightFamily{.model_type = "deepseek_v3", .prefixes = kModel, .bind = bind_deepseek_v3, .draft_layers = true},
    WeightFamily{"dots1", kModel, bind_glm4_moe},
    WeightFamily{"ernie4_5", kModel, bind_llama},
    WeightFamily{.model_type = "ernie4_5_moe", .prefixes = kModel, .bind = bind_ernie4_5_moe, .drafter = "mtp_"},
    WeightFamily{"exaone", kTransformer, bind_exaone},
    WeightFamily{"exaone4", kModel, bind_olmo2},
    WeightFamily{.model_type = "exaone_moe", .prefixes = kModel, .bind = bind_exaone_moe, .drafter = "mtp."},
    WeightFamily{"falcon", kTransformer, bind_falcon},
    WeightFamily{"flex_olmo", kModel, bind_olmo2},
    WeightFamily{"gemma", kModel, bind_llama},
    WeightFamily{"gemma2", kModel, bind_gemma2},
    WeightFamily{"gemma3_text", kTextPart, bind_gemma2},  // also with the configuration of its text part alone
    WeightFamily{"glm", kModel, bind_glm},
    WeightFamily{"glm4", kModel, bind_glm4},
    WeightFamily{.model_type = "glm4_moe", .prefixes = kModel, .bind = bind_glm4_moe, .draft_layers = true},
    WeightFamily{"gpt2", kTransformer, bind_gpt2},
    WeightFamily{"gpt_neox", kGptNeox, bind_gpt_neox, "embed_out.weight"},
    WeightFamily{"gpt_oss", kModel, bind_gpt_oss},
    WeightFamily{"gptj", kTransformer, bind_gptj},
    WeightFamily{"granite", kModel, bind_llama},
    WeightFamily{"granitemoe", kModel, bind_granitemoe},
    WeightFamily{.model_type = "granitemoehybrid", .prefixes = kModel, .bind = bind_granitemoehybrid,
                 .state = StateKind::kMamba2},
    WeightFamily{"helium", kModel, bind_llama},
    WeightFamily{"hunyuan_v1_dense", kModel, bind_hunyuan},
    WeightFamily{"hunyuan_v1_moe", kModel, bind_hunyuan},
    WeightFamily{"hyperclovax", kModel, bind_hyperclovax},
    WeightFamily{"internlm3", kModel, bind_llama},
    WeightFamily{.model_type = "lfm2", .prefixes = kModel, .bind = bind_lfm2, .state = StateKind::kShortConvolution},
    WeightFamily{.model_type = "lfm2_moe", .prefixes = kModel, .bind = bind_lfm2,
                 .state = StateKind::kShortConvolution},
    WeightFamily{"llama", kModel, bind_llama},
    WeightFamily{.model_type = "minimax_m2", .prefixes = kModel, .bind = bind_minimax_m2, .draft_layers = true},
    WeightFamily{"mistral", kModel, bind_llama},
    WeightFamily{"mistral4", kModel, bind_deepseek_v2},
    WeightFamily{"mixtral", kModel, bind_mixtral},
    WeightFamily{"mpt", kTransformer, bind_mpt},
    WeightFamily{"nemotron", kModel, bind_llama},
    WeightFamily{.model_type = "nemotron_h", .prefixes = kBackbone, .bind = bind_nemotron_h, .drafter = "mtp.",
                 .state = StateKind::kMamba2},
    WeightFamily{"olmo2", kModel, bind_olmo2},
    WeightFamily{"olmo3", kModel, bind_olmo2},
    WeightFamily{"olmoe", kModel, bind_llama},
    WeightFamily{"opt", kModel, bind_opt},
    WeightFamily{"phi", kModel, bind_phi},
    WeightFamily{"phi3", kModel, bind_phi3},
    WeightFamily{"phimoe", kModel, bind_mixtral},
    WeightFamily{"qwen2", kModel, bind_llama},
    WeightFamily{"qwen2_moe", kModel, bind_llama},
    WeightFamily{"qwen3", kModel, bind_llama},
    WeightFamily{.model_type = "qwen3_5_moe_text", .prefixes = kModel, .bind = bind_qwen3_5, .drafter = "mtp.",
                 .state = StateKind::kGatedDelta, .attention_gate = true},
    WeightFamily{.model_type = "qwen3_5_text", .prefixes = kModel, .bind = bind_qwen3_5, .drafter = "mtp.",
                 .state = StateKind::kGatedDelta, .attention_gate = true},
    WeightFamily{"qwen3_moe", kModel, bind_llama},
    WeightFamily{.model_type = "qwen3_next", .prefixes = kModel, .bind = bind_qwen3_next, .drafter = "mtp.",
                 .state = StateKind::kGatedDelta, .attention_gate = true},
    WeightFamily{"seed_oss", kModel, bind_llama},
    WeightFamily{"smollm3", kModel, bind_llama},
    WeightFamily{"solar_open", kModel, bind_glm4_moe},
    WeightFamily{"stablelm", kModel, bind_stablelm},
    WeightFamily{"starcoder2", kModel, bind_starcoder2},
};

// Causal masks and rotary frequencies that checkpoints hold beside their weights.
constexpr std::array<std::string_view, 4> kBuffers = {".attn.bias", ".attention.bias", ".masked_bias",
                                                      "rotary_emb.inv_freq"};

// "layers.61.mlp.…" of a model of 61 layers or fewer.
bool is_of_later_layer(std::string_view tensor, std::uint32_t layers) {
  constexpr std::string_view kLayers = "layers.";
  if (!tensor.starts_with(kLayers)) return false;
  tensor.remove_prefix(kLayers.size());
  std::uint32_t layer = 0;
  const auto [end, problem] = std::from_chars(tensor.data(), tensor.data() + tensor.size(), layer);
  return problem == std::errc() && end != tensor.data() + tensor.size() && *end == '.' && layer >= layers;
}

// Whether tensors of other parts may lie beside a language model's.
bool has_other_parts(const ModelConfig& config) { return tensor_prefixes(config).data() == kTextPart.data(); }

}  // namespace

bool runs_family(std::string_view model_type) {
  return std::ranges::find(kFamilies, model_type, &WeightFamily::model_type) != kFamilies.end();
}

std::string unnamed_part(const ModelShape& shape) {
  const WeightFamily& family = weight_family(shape.family);
  if (shape.state.layers > 0 && shape.state.kind != family.state) return "layers that hold a state of this kind";
  return shape.attention_gate && !family.attention_gate ? "a gate of attention's output" : "";
}

const WeightFamily& weight_family(std::string_view model_type) {
  for (const WeightFamily& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  throw std::logic_error(fmt::format("broken invariant: no weight names for model_type {}", model_type));
}

std::vector<TensorBinding> bind_tensors(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  const WeightFamily& family = weight_family(shape.family);
  weights.layers.resize(shape.mixers());
  std::vector<TensorBinding> bindings = family.bind(config, weights);
  if (!shape.tied_head) bindings.push_back(bind_head(shape, weights));
  return bindings;
}

TensorBinding bind_head(const ModelShape& shape, ModelWeights& weights) {
  const std::size_t rows = shape.vocab;
  const std::size_t cols = shape.embedding_width;
  return {std::string(weight_family(shape.family).head), {rows, cols}, {{&weights.head, rows, cols, 0, 0, rows}}};
}

std::span<const std::string_view> tensor_prefixes(const ModelConfig& config) {
  if (config.options.text_part) return kTextPart;
  return weight_family(config.shape.family).prefixes;
}

bool is_skipped(const ModelConfig& config, std::string_view tensor) {
  const ModelShape& shape = config.shape;
  const WeightFamily& family = weight_family(shape.family);
  const auto ends = [&](std::string_view buffer) { return tensor.ends_with(buffer); };
  const auto starts = [&](std::string_view part) { return tensor.starts_with(part); };
  return std::any_of(kBuffers.begin(), kBuffers.end(), ends) ||
         (has_other_parts(config) && std::any_of(kOtherParts.begin(), kOtherParts.end(), starts)) ||
         (family.draft_layers && is_of_later_layer(tensor, shape.layers)) ||
         (!family.drafter.empty() && tensor.starts_with(family.drafter)) || (shape.tied_head && tensor == family.head);
}

}  // namespace kvroof
