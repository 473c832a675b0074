#include "sim/model/config_deepseek.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

constexpr std::uint32_t kMostLatent = 1U << 16;

// A letter for each layer, or a list: "FSSS", ["full", "shared", …].
std::vector<std::string> index_kinds(ConfigFields& fields) {
  const std::string_view key = fields.named({"indexer_types", "index_topk_pattern"});
  if (!fields.is_text(key)) return fields.texts(key);
  std::vector<std::string> kinds;
  for (const char c : fields.text(key, "")) kinds.push_back(c == 'F' ? "full" : c == 'S' ? "shared" : "");
  return kinds;
}

// Layers that choose themselves. A schedule counts from its offset: each `freq`-th layer from there, and all before it.
std::uint32_t index_layers(ConfigFields& fields, std::uint32_t layers) {
  const std::vector<std::string> kinds = index_kinds(fields);
  if (!kinds.empty()) {
    const auto sharing = std::ranges::count(kinds, "shared"), all = static_cast<std::ptrdiff_t>(layers);
    if (std::ranges::count(kinds, "full") + sharing != all || kinds.size() != layers || kinds.front() != "full") {
      fields.fail(fmt::format("of {} layers {} are said to choose tokens or to share the choice, expected each, and "
                              "the first to choose",
                              layers, kinds.size()));
    }
    return static_cast<std::uint32_t>(std::ranges::count(kinds, "full"));
  }
  const std::uint32_t every = std::max(fields.count("index_topk_freq", 1), 1U);
  const std::uint32_t offset = fields.count("index_skip_topk_offset", 2);
  std::uint32_t choosing = 0;
  for (std::uint32_t i = 0; i < layers; ++i) choosing += i + 1 <= offset || (i + 1 - offset) % every == 0 ? 1 : 0;
  return choosing;
}

}  // namespace

void read_latent(ConfigFields& fields, ModelConfig& config) {
  fields.only("attention_bias", false, "biases in latent attention are not supported");
  ModelShape& s = config.shape;
  s.latent_rank = fields.size("kv_lora_rank", {}, kMostLatent / 2);
  s.latent_q_rank = fields.count("q_lora_rank", 0, 1U << 20);
  s.latent_nope_dim = fields.size("qk_nope_head_dim", {}, kMostLatent);
  s.latent_rope_dim = fields.size("qk_rope_head_dim", {}, kMostLatent / 2);
  s.latent_v_dim = fields.size("v_head_dim", {}, kMostLatent);
  s.kv_heads = 1;
  s.head_dim = s.latent_rank + s.latent_rope_dim;
  s.v_head_dim = s.latent_rank;
  // YaRN's temperature acts on the whole product here: its square multiplies the scale.
  double scale = 1 / std::sqrt(static_cast<double>(s.latent_nope_dim) + s.latent_rope_dim);
  const std::string section = rotary_section(fields);
  if (const double mscale = read_yarn_mscale(fields, section, ".mscale_all_dim"); mscale > 0) {
    const double temperature = yarn_magnitude(fields.positive(section + ".factor"), mscale);
    scale *= temperature * temperature;
  }
  config.options.layers.assign(s.layers, {static_cast<float>(scale)});
}

void read_groups(ConfigFields& fields, const ModelShape& shape, RoutingRule& routing) {
  routing.groups = fields.size("n_group", {}, shape.experts);
  routing.top_groups = fields.size("topk_group", {}, routing.groups);
  if (shape.experts % routing.groups != 0) {
    fields.fail(fmt::format("n_routed_experts ({}) is not a multiple of n_group ({})", shape.experts, routing.groups));
  } else if (shape.experts_per_token > shape.experts / routing.groups * routing.top_groups) {
    fields.fail(fmt::format("num_experts_per_tok is {}, more than the experts of topk_group ({}) groups",
                            shape.experts_per_token, routing.top_groups));
  }
}

void read_shared_experts(ConfigFields& fields, ModelConfig& config) {
  if (fields.size("moe_layer_freq", 1U) != 1) {
    fields.refuse("moe_layer_freq", "dense layers between expert layers are not supported");
  }
  ModelShape& s = config.shape;
  s.experts = fields.size("n_routed_experts", {}, 1U << 16);
  s.experts_per_token = fields.size("num_experts_per_tok", {}, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", {}, 1U << 20);
  s.shared_expert_ffn = s.expert_ffn * fields.count("n_shared_experts", 0, 1U << 10);
  s.dense_layers = fields.count("first_k_dense_replace", 0, s.layers);
  config.options.routing.scale = static_cast<float>(fields.positive("routed_scaling_factor", 1.0));
}

void read_sigmoid_experts(ConfigFields& fields, ModelConfig& config) {
  // Files of dots.llm1 name the method there.
  fields.only("scoring_func", {"sigmoid", "noaux_tc"}, "in this family routing is only supported by");
  fields.only("topk_method", {"noaux_tc"}, "in this family routing is only supported as");
  read_shared_experts(fields, config);
  read_sigmoid_routing(fields, config);
}

void read_sigmoid_routing(ConfigFields& fields, ModelConfig& config) {
  config.shape.router_bias = true;
  config.options.routing.scores = RouterScores::kSigmoid;
  read_grouped_routing(fields, config);
}

void read_grouped_routing(ConfigFields& fields, ModelConfig& config) {
  RoutingRule& routing = config.options.routing;
  routing.group_best = 2;
  routing.renormalise = fields.flag("norm_topk_prob", true);
  read_groups(fields, config.shape, routing);
  if (routing.groups > 1 && config.shape.experts / routing.groups < 2) {
    fields.fail(fmt::format("n_group is {} for {} experts: a group is ranked by its two best", routing.groups,
                            config.shape.experts));
  }
}

ModelConfig read_latent_decoder(ConfigFields& fields, std::string_view family,
                                std::span<const std::string_view> rotary_keys) {
  const RotaryStyle rotary =
      fields.flag("rope_interleave", true) ? RotaryStyle::kAdjacentPairs : RotaryStyle::kHalfSplit;
  ModelConfig config =
      read_decoder(fields, {.family = family, .head_dim = "qk_rope_head_dim", .rotary = rotary,
                            .own_rotary_keys = rotary_keys});
  read_latent(fields, config);
  return config;
}

ModelConfig read_deepseek_v3(ConfigFields& fields, std::string_view family) {
  ModelConfig config = read_latent_decoder(fields, family);
  read_sigmoid_experts(fields, config);
  return config;
}

std::uint32_t read_dense_layers(ConfigFields& fields, std::uint32_t layers, std::uint32_t otherwise) {
  const std::vector<std::string> types = fields.texts("mlp_layer_types");
  if (types.empty()) return otherwise;
  const auto first_sparse = std::ranges::find(types, "sparse");
  const bool leading = std::all_of(types.begin(), first_sparse, [](const auto& type) { return type == "dense"; }) &&
                       std::all_of(first_sparse, types.end(), [](const auto& type) { return type == "sparse"; });
  if (types.size() != layers || !leading) {
    fields.refuse("mlp_layer_types", "only dense layers before sparse ones are supported, one entry for each layer");
  }
  return static_cast<std::uint32_t>(first_sparse - types.begin());
}

void read_index(ConfigFields& fields, ModelConfig& config) {
  constexpr std::uint32_t kMost = 1U << 12;
  TokenIndex& index = config.shape.index;
  index.heads = fields.size("index_n_heads", {}, kMost);
  index.dim = fields.size("index_head_dim", {}, kMost);
  index.tokens = fields.size("index_topk", {}, 1U << 30);
  index.layers = index_layers(fields, config.shape.layers);
}

ModelConfig read_indexed_deepseek(ConfigFields& fields, std::string_view family) {
  ModelConfig config = read_deepseek_v3(fields, family);
  config.shape.dense_layers = read_dense_layers(fields, config.shape.layers, config.shape.dense_layers);
  read_index(fields, config);
  return config;
}

}  // namespace kvroof
