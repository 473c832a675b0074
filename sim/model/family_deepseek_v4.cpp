// DeepSeek-V4: each layer attends to a window and, beside it, to rows that each stand for several tokens: all of those
// that stand for many, and those of few that an index chooses. Residuals are streams; experts of the first layers are
// named by a table of tokens. Published files say the tokens of a row for each layer, transformers the kind of layer.
#include <algorithm>

#include "sim/model/config_decoder.hpp"
#include "sim/model/config_layers.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

// Tokens that a row stands for in a layer of each kind.
struct Rates {
  std::uint32_t chosen = 4, all = 128;
};

Rates read_rates(ConfigFields& fields) {
  const auto rate = [&](std::string_view kind, std::string_view older, std::uint32_t fallback) {
    return fields.size(fields.has(older) ? std::string(older) : fmt::format("compress_rates.{}", kind), fallback,
                       kMostTokensOfRow);
  };
  const Rates rates{rate("compressed_sparse_attention", "compress_rate_csa", 4),
                    rate("heavily_compressed_attention", "compress_rate_hca", 128)};
  if (rates.chosen == rates.all) {
    fields.fail(fmt::format("compress_rates has {} for both kinds of layers, expected two that differ", rates.all));
  }
  return rates;
}

std::uint32_t rate_by_name(ConfigFields& fields, const std::string& type, Rates rates) {
  if (type == "compressed_sparse_attention") return rates.chosen;
  if (type == "heavily_compressed_attention") return rates.all;
  if (type != "sliding_attention") {
    fields.fail(fmt::format("layer_types has \"{}\", which is not supported; known: compressed_sparse_attention, "
                            "heavily_compressed_attention, sliding_attention",
                            type.substr(0, 80)));
  }
  return 0;
}

// Entries behind the last layer are of layers that draft tokens. Where the file has no list, the first two layers hold
// rows of many tokens, and both kinds take turns from there.
std::vector<std::uint32_t> read_layer_rates(ConfigFields& fields, std::uint32_t layers, Rates rates) {
  const std::vector<std::string> types = fields.texts("layer_types");
  const std::vector<std::int64_t> ratios = fields.ids("compress_ratios", {});
  const std::size_t entries = types.empty() ? ratios.size() : types.size();
  std::vector<std::uint32_t> out(layers, 0);
  if (entries > 0 && entries < layers) {
    fields.fail(fmt::format("{} has {} entries, expected one for each of the {} layers",
                            types.empty() ? "compress_ratios" : "layer_types", entries, layers));
    return out;
  }
  for (std::uint32_t i = 0; i < layers; ++i) {
    if (!types.empty()) {
      out[i] = rate_by_name(fields, types[i], rates);
    } else if (ratios.empty()) {
      out[i] = i < 2 || i % 2 == 0 ? rates.all : rates.chosen;
    } else if (ratios[i] == 0 || ratios[i] == rates.chosen || ratios[i] == rates.all) {
      out[i] = static_cast<std::uint32_t>(ratios[i]);
    } else {
      fields.fail(fmt::format("compress_ratios has {}, expected 0, {} or {}", ratios[i], rates.chosen, rates.all));
    }
  }
  return out;
}

void read_rows(ConfigFields& fields, ModelShape& s) {
  const Rates rates = read_rates(fields);
  CompressedRows& rows = s.compressed;
  rows.rates = read_layer_rates(fields, s.layers, rates);
  s.layer_windows.assign(s.layers, fields.size("sliding_window"));
  s.latent_q_rank = fields.size("q_lora_rank", {}, 1U << 20);
  rows.out_groups = fields.size("o_groups", {}, kMostHeads);
  rows.out_rank = fields.size("o_lora_rank", {}, 1U << 16);
  if (s.heads % rows.out_groups != 0) {
    fields.fail(fmt::format("num_attention_heads ({}) is not a multiple of o_groups ({})", s.heads, rows.out_groups));
  }
  const auto choosing = static_cast<std::uint32_t>(std::ranges::count(rows.rates, rates.chosen));
  if (choosing == 0) return;
  constexpr std::uint32_t kMost = 1U << 12;
  rows.chosen_rate = rates.chosen;
  s.index = {fields.size("index_n_heads", {}, kMost), fields.size("index_head_dim", {}, kMost),
             fields.size("index_topk", {}, 1U << 30), choosing};
  if (fields.size("index_topk_freq", 1U) != 1 || fields.has("index_topk_pattern")) {
    fields.refuse("index_topk_freq", "layers that share the choice of others are not supported in this family");
  }
}

// Of the layers of experts, those that a table of tokens names the experts of come first.
std::uint32_t read_hashed_layers(ConfigFields& fields, std::uint32_t layers) {
  const std::vector<std::string> types = fields.texts("mlp_layer_types");
  if (types.empty()) return std::min(fields.count("num_hash_layers", 3, kMostLayers), layers);
  const auto first = std::ranges::find(types, "moe");
  const bool leading = std::all_of(types.begin(), first, [](const auto& type) { return type == "hash_moe"; }) &&
                       std::all_of(first, types.end(), [](const auto& type) { return type == "moe"; });
  if (types.size() < layers || !leading) {
    fields.refuse("mlp_layer_types", "only hash_moe before moe is supported, one entry for each layer");
  }
  return std::min(static_cast<std::uint32_t>(first - types.begin()), layers);
}

void read_experts_of_all_layers(ConfigFields& fields, ModelShape& s) {
  s.experts = fields.size("n_routed_experts", {}, 1U << 16);
  s.experts_per_token = fields.size("num_experts_per_tok", {}, s.experts);
  s.expert_ffn = s.ffn;
  s.shared_expert_ffn = s.expert_ffn;
  if (fields.size("n_shared_experts", 1U) != 1) {
    fields.refuse("n_shared_experts", "more than one shared expert is not supported in this family");
  }
  s.router_bias = true;
  s.hashed_layers = read_hashed_layers(fields, s.layers);
}

}  // namespace

Result<ModelConfig> parse_deepseek_v4_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  // Its MLPs are experts, and no other size of an MLP counts.
  fields.forget({"intermediate_size"});
  fields.defaults(R"({"vocab_size": 129280, "hidden_size": 4096, "moe_intermediate_size": 2048,
                      "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512,
                      "q_lora_rank": 1024, "n_routed_experts": 256, "num_experts_per_tok": 6, "rms_norm_eps": 1e-6,
                      "max_position_embeddings": 1048576, "sliding_window": 128, "o_groups": 8, "o_lora_rank": 1024,
                      "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "bos_token_id": 0,
                      "eos_token_id": 1})");
  fields.only("attention_bias", false, "biases in attention are not supported in this family");
  fields.only("mlp_bias", false, "biases of experts are not supported in this family");
  fields.only("hidden_act", {"silu"}, "in this family experts are only supported with");
  if (fields.size("num_key_value_heads", 1U) != 1) {
    fields.refuse("num_key_value_heads", "more than one KV head is not supported in this family");
  }
  fields.defaults(fmt::format(R"({{"intermediate_size": {}}})", fields.size("moe_intermediate_size", {}, 1U << 20)));
  ModelConfig config = read_decoder(fields, {.family = "deepseek_v4",
                                             .rotary = RotaryStyle::kAdjacentPairs,
                                             .partial_rotary = true,
                                             .rotary_layer_type = "compress"});
  ModelShape& s = config.shape;
  s.attention_sinks = true;
  read_rows(fields, s);
  read_experts_of_all_layers(fields, s);
  s.residual_streams = fields.size("hc_mult", 4, 64);
  if (s.residual_streams < 2) fields.refuse("hc_mult", "a single residual stream is not supported in this family");
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
