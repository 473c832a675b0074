#include "sim/model/config_states.hpp"

#include <algorithm>

namespace kvroof {
namespace {

constexpr std::uint32_t kMostHeadsOfStates = 1U << 16;

bool attends_by_name(ConfigFields& fields, const std::string& type) {
  if (type == "full_attention" || type == "attention") return true;
  if (type != "linear_attention" && type != "mamba" && type != "conv") {
    fields.fail(fmt::format("layer_types has \"{}\", which is not supported; known: full_attention, linear_attention, "
                            "mamba, conv",
                            type.substr(0, 80)));
  }
  return false;
}

}  // namespace

void say_not_run(ModelConfig& config, std::string_view part) {
  config.options.cannot_run =
      fmt::format("the engine does not run {}; plan, compare and simulate take this model as it is", part);
}

void read_mixers(ConfigFields& fields, ModelConfig& config, StateLayers state,
                 const std::function<bool(std::uint32_t layer)>& attends) {
  ModelShape& shape = config.shape;
  const std::uint32_t all = shape.layers;
  const std::vector<std::string> types = fields.texts(fields.named({"layer_types", "layers_block_type"}));
  if (!types.empty() && types.size() != all) {
    fields.fail(fmt::format("layer_types has {} entries, expected one for each of the {} layers", types.size(), all));
    return;
  }
  std::vector<std::uint32_t>& attending = config.options.attending;
  for (std::uint32_t i = 0; i < all; ++i) {
    if (types.empty() ? attends(i) : attends_by_name(fields, types[i])) attending.push_back(i);
  }
  if (attending.empty()) fields.fail("no layer attends: a model without a cache is not supported");
  shape.layers = static_cast<std::uint32_t>(attending.size());
  config.options.layers.resize(shape.layers);
  state.layers = all - shape.layers;
  if (state.layers > 0) shape.state = state;
  if (state.layers == 0) attending.clear();
}

DType state_type(ConfigFields& fields, std::string_view key) {
  const std::string text = fields.text(key, "auto");
  if (text == "auto") return fields.weight_type();
  const auto type = parse_dtype(text);
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16) {
    fields.fail(fmt::format("{} is \"{}\", expected float32, float16 or bfloat16", key, text.substr(0, 80)));
    return DType::kF32;
  }
  return *type;
}

StateLayers read_gated_delta(ConfigFields& fields) {
  StateLayers state;
  state.kind = StateKind::kGatedDelta;
  state.heads = fields.size("linear_num_value_heads", 32, kMostHeadsOfStates);
  state.key_heads = fields.size("linear_num_key_heads", 16, kMostHeadsOfStates);
  state.key_dim = fields.size("linear_key_head_dim", 128, kMostHeadDim);
  state.value_dim = fields.size("linear_value_head_dim", 128, kMostHeadDim);
  state.convolution = fields.size("linear_conv_kernel_dim", 4, 64);
  state.type = state_type(fields, "mamba_ssm_dtype");
  if (state.key_heads == 0 || state.heads % state.key_heads != 0) {
    fields.fail(fmt::format("linear_num_value_heads is {}, which is no multiple of linear_num_key_heads, {}",
                            state.heads, state.key_heads));
  }
  return state;
}

StateLayers read_mamba2(ConfigFields& fields, const Mamba2Keys& keys, std::optional<std::uint32_t> head_dim) {
  StateLayers state;
  state.kind = StateKind::kMamba2;
  state.heads = fields.size(keys.heads, 128, kMostHeadsOfStates);
  state.value_dim = head_dim ? *head_dim : fields.size(keys.head_dim, {}, kMostHeadDim);
  state.key_heads = fields.size(keys.groups, {}, state.heads);
  state.key_dim = fields.size(keys.state_size, {}, kMostHeadDim);
  state.convolution = fields.size(keys.convolution, {}, 64);
  if (fields.bounds_something("time_step_limit")) fields.refuse("time_step_limit", "limits of steps are not supported");
  fields.defaults(R"({"mamba_ssm_cache_dtype": "float32"})");
  state.type = state_type(fields, "mamba_ssm_cache_dtype");
  return state;
}

ModelConfig read_qwen3_hybrid(ConfigFields& fields, std::string_view family) {
  ModelConfig config = read_decoder(fields, {.family = family, .partial_rotary = true});
  config.options.norm_offset = 1;
  config.shape.qk_norm = QkNorm::kHead;
  config.shape.attention_gate = fields.flag("attn_output_gate", true);
  const std::uint32_t interval = fields.size("full_attention_interval", 4, kMostLayers);
  fields.only("hidden_act", {"silu", "swish"}, "but gated delta nets are only supported with");
  read_mixers(fields, config, read_gated_delta(fields),
              [&](std::uint32_t layer) { return (layer + 1) % interval == 0; });
  return config;
}

}  // namespace kvroof
