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

#define KVROOF_ENTRY(type, before, binder, ...) \
  WeightFamily{.model_type = #type, .prefixes = before, .bind = bind_##binder __VA_OPT__(, ) __VA_ARGS__},
constexpr std::array kFamilies = {KVROOF_WEIGHT_FAMILIES(KVROOF_ENTRY)};
#undef KVROOF_ENTRY

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

std::string not_run(const ModelConfig& config) {
  if (!config.options.cannot_run.empty() || runs_family(config.shape.family)) return config.options.cannot_run;
  return fmt::format("the engine does not run model_type {}; plan, compare and simulate take this model as it is",
                     config.shape.family);
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
