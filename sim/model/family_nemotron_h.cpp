// Nemotron-H and Nemotron 3: Mamba-2, attention without positions, MLPs and experts are layers by themselves, in the
// order of a pattern; experts may be narrower than the model.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

struct LayerCount {
  std::uint32_t states = 0, attention = 0, mlps = 0, experts = 0;
  std::vector<std::uint32_t> attending, alone;  // of the mixers, as in ModelOptions
  bool after_mixer = false;                     // the last one
  bool in_pairs = true;                         // each MLP follows a mixer

  [[nodiscard]] std::uint32_t mixers() const { return states + attention; }

  void add_mixer(bool attends) {
    if (after_mixer) alone.push_back(mixers() - 1);
    if (attends) attending.push_back(mixers());
    ++(attends ? attention : states);
    after_mixer = true;
  }
  void add_mlp(bool has_experts) {
    in_pairs = in_pairs && after_mixer;
    ++(has_experts ? experts : mlps);
    after_mixer = false;
  }
};

void count_layer(ConfigFields& fields, LayerCount& count, const std::string& kind) {
  if (kind == "M" || kind == "mamba" || kind == "linear_attention") {
    count.add_mixer(false);
  } else if (kind == "*" || kind == "attention" || kind == "full_attention") {
    count.add_mixer(true);
  } else if (kind == "-" || kind == "mlp") {
    count.add_mlp(false);
  } else if (kind == "E" || kind == "moe") {
    count.add_mlp(true);
  } else {
    fields.fail(fmt::format("a layer is \"{}\", which is not supported; known: M mamba, * attention, - mlp, E moe",
                            kind.substr(0, 80)));
  }
}

LayerCount count_layers(ConfigFields& fields) {
  LayerCount count;
  const std::vector<std::string> listed = fields.texts(fields.named({"layers_block_type", "layer_types"}));
  for (const std::string& kind : listed) count_layer(fields, count, kind);
  if (listed.empty()) {
    for (const char letter : fields.text("hybrid_override_pattern", "")) {
      count_layer(fields, count, std::string(1, letter));
    }
  }
  if (count.after_mixer) count.alone.push_back(count.mixers() - 1);
  if (count.attention == 0) fields.fail("no layer attends: hybrid_override_pattern or layers_block_type has no \"*\"");
  if (count.mlps + count.experts == 0) fields.fail("no layer has an MLP: a model of mixers alone is not supported");
  return count;
}

StateLayers read_states(ConfigFields& fields, std::uint32_t layers) {
  StateLayers state;
  if (layers == 0) return state;
  fields.only("use_bias", false, "biases of projections are not supported");
  fields.only("use_conv_bias", true, "a convolution without biases is not supported");
  fields.only("mamba_hidden_act", {"silu", "swish"}, "but Mamba-2 is only supported with");
  fields.defaults(R"({"mamba_head_dim": 64, "ssm_state_size": 128})");
  const std::string_view groups = fields.named({"n_groups", "mamba_n_groups"});
  const std::string_view convolution = fields.named({"conv_kernel", "mamba_d_conv"});
  fields.defaults(fmt::format(R"({{"{}": 8}})", groups));
  fields.defaults(fmt::format(R"({{"{}": 4}})", convolution));
  state = read_mamba2(fields, {"mamba_num_heads", "mamba_head_dim", groups, "ssm_state_size", convolution});
  state.layers = layers;
  return state;
}

void read_nemotron_experts(ConfigFields& fields, ModelConfig& config) {
  ModelShape& s = config.shape;
  s.experts = fields.size("n_routed_experts", 8, 1U << 16);
  s.experts_per_token = fields.size("num_experts_per_tok", 2, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", 7688, 1U << 20);
  s.shared_expert_ffn = fields.size("moe_shared_expert_intermediate_size", 7688, 1U << 20);
  s.expert_width = fields.count("moe_latent_size", 0, 1U << 20);
  s.router_bias = true;
  config.options.routing.scale = static_cast<float>(fields.positive("routed_scaling_factor", 1.0));
  read_sigmoid_routing(fields, config);
}

std::string not_run(const LayerCount& count) {
  if (!count.in_pairs) return "MLPs that follow no mixer";
  return count.mlps > 0 && count.experts > 0 ? "MLPs between experts" : "";
}

}  // namespace

Result<ModelConfig> parse_nemotron_h_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 21504, "num_attention_heads": 32,
                      "num_key_value_heads": 8, "max_position_embeddings": 4096, "mlp_hidden_act": "relu2",
                      "layer_norm_epsilon": 1e-5, "num_hidden_layers": 52, "n_group": 1, "topk_group": 1,
                      "bos_token_id": 1, "eos_token_id": 2})");
  if (!fields.has("attention_head_dim")) fields.defaults(R"({"head_dim": 128})");
  const std::string_view head_dim = fields.named({"attention_head_dim", "head_dim"});
  ModelConfig config =
      read_decoder(fields, {.family = "nemotron_h",
                            .norm_eps = "layer_norm_epsilon",
                            .activation = "mlp_hidden_act",
                            .head_dim = head_dim});
  fields.only("mlp_bias", false, "biases of MLPs are not supported");
  ModelShape& s = config.shape;
  const LayerCount count = count_layers(fields);
  s.mlp = MlpKind::kPlain;
  s.position = PositionScheme::kNone;
  config.options.rotary.clear();
  s.layers = count.attention;
  config.options.layers.resize(s.layers);
  s.state = read_states(fields, count.states);
  s.mlp_layers = count.mlps + count.experts;
  if (count.experts > 0) {
    s.dense_layers = count.mlps;
    read_nemotron_experts(fields, config);
  }
  if (s.state.layers > 0) config.options.attending = count.attending;
  config.options.alone = count.alone;
  if (const std::string part = not_run(count); !part.empty()) say_not_run(config, part);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
