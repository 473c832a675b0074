// config.json of models some of whose layers hold a state in place of a cache.
#include <filesystem>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelConfig parsed(const std::string& text) { return parse_config_json(text).or_throw("config.json"); }

std::string error_of(const std::string& text) {
  const Result<ModelConfig> config = parse_config_json(text);
  return config ? "" : config.error();
}

// But for what a file's name and the model's card say.
void check_same(const ModelShape& read, const std::string& catalog_name) {
  INFO(catalog_name);
  ModelShape expected = find_model_shape(catalog_name, kCatalog), found = read;
  expected.name = found.name;
  expected.max_positions = found.max_positions;
  CHECK(shape_to_json(found) == shape_to_json(expected));
}

const std::string kBf16 = R"("dtype":"bfloat16")";

}  // namespace

TEST_CASE("Qwen3-Next attends in every fourth layer, and the others are gated delta nets") {
  // Qwen/Qwen3-Next-80B-A3B-Instruct, what is no default of its class.
  const ModelConfig config = parsed(
      R"({"model_type":"qwen3_next","full_attention_interval":4,"max_position_embeddings":262144,)"
      R"("rope_theta":10000000,"partial_rotary_factor":0.25,)"
      R"("decoder_sparse_step":1,"mlp_only_layers":[],"torch_dtype":"bfloat16"})");
  check_same(config.shape, "qwen3-next-80b-a3b");
  CHECK(config.options.layers.size() == 12);
  CHECK(config.options.rotary[0].dims == 64);
  CHECK(config.options.norm_offset == 1);
  CHECK(config.options.attending == std::vector<std::uint32_t>{3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47});
  CHECK(config.block_of(LayerId(2)) == 11);
  CHECK(config.options.cannot_run.empty());
}

TEST_CASE("Qwen3.5's language models are within it, with and without experts, and say the type of their states") {
  const std::string dense = R"({"model_type":"qwen3_5","tie_word_embeddings":false,"text_config":{)"
      R"("model_type":"qwen3_5_text","dtype":"bfloat16","hidden_size":5120,"intermediate_size":17408,)"
      R"("num_hidden_layers":64,"num_attention_heads":24,"num_key_value_heads":4,"linear_num_value_heads":48,)"
      R"("attn_output_gate":true,"mamba_ssm_dtype":"float32","rope_parameters":{"mrope_interleaved":true,)"
      R"("mrope_section":[11,11,10],"partial_rotary_factor":0.25,"rope_theta":10000000,"rope_type":"default"}},)"
      R"("vision_config":{"depth":27}})";
  const ModelConfig config = parsed(dense);
  CHECK(config.options.text_part);
  check_same(config.shape, "qwen3.5-27b");
  check_same(parsed(R"({"model_type":"qwen3_5_moe","text_config":{"mamba_ssm_dtype":"float32",)" + kBf16 + "}}").shape,
             "qwen3.5-35b-a3b");
}

TEST_CASE("the weights of Qwen3.5's and Qwen3-VL's chosen experts sum to 1 though their files do not say so") {
  CHECK(parsed(R"({"model_type":"qwen3_5_moe_text",)" + kBf16 + "}").options.routing.renormalise);
  CHECK(parsed(R"({"model_type":"qwen3_vl_moe","text_config":{"hidden_size":64,"num_attention_heads":4,)"
               R"("vocab_size":64,"num_hidden_layers":1,"intermediate_size":64,"moe_intermediate_size":32,)"
               R"("num_experts":8,)" +
               kBf16 + "}}")
            .options.routing.renormalise);
}

TEST_CASE("Kimi Linear says its attending layers from one, and attends without positions") {
  const std::string text = R"({"model_type":"kimi_linear","first_k_dense_replace":1,"num_experts":256,)"
      R"("num_experts_per_token":8,"num_shared_experts":1,"mla_use_nope":true,"q_lora_rank":null,)"
      R"("model_max_length":1048576,"linear_attn_config":{"full_attn_layers":[4,8,12,16,20,24,27],"head_dim":128,)"
      R"("kda_layers":[1,2,3,5,6,7,9,10,11,13,14,15,17,18,19,21,22,23,25,26],"num_heads":32,)"
      R"("short_conv_kernel_size":4},)" + kBf16 + "}";
  const ModelConfig config = parsed(text);
  check_same(config.shape, "kimi-linear-48b-a3b");
  CHECK(config.shape.max_positions == 1048576);
  CHECK(config.options.rotary.empty());
}

TEST_CASE("layers of Nemotron-H are what its pattern says, mixers and MLPs apart") {
  const std::string nano = R"({"model_type":"nemotron_h","hidden_size":4480,"intermediate_size":15680,)"
      R"("num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"mamba_num_heads":128,"mamba_head_dim":80,)"
      R"("n_groups":8,"ssm_state_size":128,"mlp_hidden_act":"relu2","mamba_hidden_act":"silu",)"
      R"("hybrid_override_pattern":"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",)" + kBf16 + "}";
  check_same(parsed(nano).shape, "nemotron-nano-9b-v2");
  CHECK(parsed(nano).options.activation == Activation::kRelu2);
  const std::string with_experts = R"({"model_type":"nemotron_h","hidden_size":2688,"intermediate_size":1856,)"
      R"("num_key_value_heads":2,"head_dim":128,"mamba_num_heads":64,"n_routed_experts":128,"num_experts_per_tok":6,)"
      R"("moe_intermediate_size":1856,"moe_shared_expert_intermediate_size":3712,"mamba_ssm_cache_dtype":"float32",)"
      R"("hybrid_override_pattern":"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",)" + kBf16 + "}";
  check_same(parsed(with_experts).shape, "nemotron-3-nano-30b-a3b");
}

TEST_CASE("a mixer of Nemotron-H has the MLP that follows it, or none where another mixer does") {
  // The fourth mixer follows the third at once, and nothing follows the last.
  const ModelConfig config = parsed(R"({"model_type":"nemotron_h","hybrid_override_pattern":"M-MEM*EM"})");
  CHECK(config.options.attending == std::vector<std::uint32_t>{3});
  CHECK(config.options.alone == std::vector<std::uint32_t>{2, 4});
  CHECK(config.has_mlp(1));
  CHECK_FALSE(config.has_mlp(2));
  const auto not_run = [](const std::string& pattern) {
    return parsed(R"({"model_type":"nemotron_h","hybrid_override_pattern":")" + pattern + R"("})").options.cannot_run;
  };
  CHECK(not_run("M-M*-").empty());
  CHECK(not_run("MEM*E").empty());
  CHECK(not_run("M-M*E").find("MLPs between experts") != std::string::npos);
  CHECK(not_run("M--*-").find("MLPs that follow no mixer") != std::string::npos);
  CHECK(not_run("-M-*-").find("MLPs that follow no mixer") != std::string::npos);
}

TEST_CASE("experts of Nemotron 3 are chosen by sigmoids with a bias, in groups where there are some") {
  const ModelConfig config = parsed(R"({"model_type":"nemotron_h","hybrid_override_pattern":"ME*E","n_group":4,)"
                                    R"("topk_group":2,"n_routed_experts":16,"routed_scaling_factor":2.5})");
  const RoutingRule& routing = config.options.routing;
  CHECK(routing.scores == RouterScores::kSigmoid);
  CHECK(routing.renormalise);
  CHECK(routing.scale == 2.5F);
  CHECK(routing.groups == 4);
  CHECK(routing.top_groups == 2);
  CHECK(routing.group_best == 2);
  CHECK(config.shape.router_bias);
}

TEST_CASE("what Python writes beside JSON's numbers is no obstacle, but no number either") {
  const std::string common = R"("model_type":"nemotron_h","layers_block_type":["mamba","attention","mlp"],)";
  CHECK(error_of("{" + common + R"("time_step_limit":[0.0,Infinity],"note":"\"Infinity\" and NaN"})").empty());
  CHECK(error_of("{" + common + R"("layer_norm_epsilon":NaN})").find("layer_norm_epsilon") != std::string::npos);
  CHECK(error_of("{" + common + R"("hidden_size":-Infinity})").find("hidden_size") != std::string::npos);
}

TEST_CASE("a list of Nemotron-H's layers counts before its pattern, as its class has it") {
  const ModelConfig config = parsed(R"({"model_type":"nemotron_h","hybrid_override_pattern":"M-*-",)"
                                    R"("layers_block_type":["mamba","moe","attention","moe"]})");
  CHECK(parameter_count(config.shape) == 2359048592);  // transformers 5.24
}

TEST_CASE("Kimi Linear's list of delta attention alone says which layers attend") {
  const ModelConfig config = parsed(R"({"model_type":"kimi_linear","num_hidden_layers":4,)"
                                    R"("linear_attn_config":{"kda_layers":[1,3]}})");
  CHECK(config.shape.layers == 2);
  CHECK(config.shape.state.layers == 2);
}

TEST_CASE("experts of Nemotron 3 may be narrower than the model, between two products") {
  // transformers 5.24 makes 144,548,464 parameters of this.
  const ModelConfig config = parsed(
      R"({"model_type":"nemotron_h","hidden_size":512,"intermediate_size":300,"moe_latent_size":128,)"
      R"("moe_intermediate_size":96,"moe_shared_expert_intermediate_size":200,"mamba_num_heads":16,)"
      R"("mamba_head_dim":64,"n_groups":8,"ssm_state_size":32,)"
      R"("layers_block_type":["mamba","moe","attention","moe","mlp","mamba"]})");
  CHECK(parameter_count(config.shape) == 144548464);
}

TEST_CASE("Granite 4 has a shared MLP in each layer, alone or beside experts") {
  std::string layers;
  for (int i = 0; i < 40; ++i) layers += std::string(i > 0 ? "," : "") + (i % 10 == 5 ? "\"attention\"" : "\"mamba\"");
  const std::string common = R"("model_type":"granitemoehybrid","num_hidden_layers":40,"vocab_size":100352,)"
      R"("tie_word_embeddings":true,"mamba_d_head":64,"mamba_d_state":128,"mamba_n_groups":1,"mamba_expand":2,)"
      R"("position_embedding_type":"nope","layer_types":[)" + layers + "]," + kBf16 + "}";
  check_same(parsed(R"({"hidden_size":2048,"num_attention_heads":32,"num_key_value_heads":8,"mamba_n_heads":64,)"
                    R"("num_local_experts":0,"num_experts_per_tok":0,"shared_intermediate_size":8192,)" + common).shape,
             "granite-4.0-h-micro");
  check_same(parsed(R"({"hidden_size":4096,"intermediate_size":768,"num_attention_heads":32,"num_key_value_heads":8,)"
                    R"("mamba_n_heads":128,"num_local_experts":72,"num_experts_per_tok":10,)"
                    R"("shared_intermediate_size":1536,)" + common).shape,
             "granite-4.0-h-small");
}

TEST_CASE("a Granite 4 whose layers all attend has no state, and is run with its multipliers") {
  const ModelConfig config =
      parsed(R"({"model_type":"granitemoehybrid","num_hidden_layers":2,"num_local_experts":0,)"
             R"("layer_types":["attention","attention"],"position_embedding_type":"rope",)"
             R"("embedding_multiplier":12,"attention_multiplier":0.0078125,"residual_multiplier":0.22,)"
             R"("logits_scaling":10})");
  CHECK(config.shape.state.kind == StateKind::kNone);
  CHECK(config.shape.layers == 2);
  CHECK(config.options.cannot_run.empty());
  CHECK(config.options.rotary.size() == 1);
  CHECK(config.options.embedding_scale == 12);
  CHECK(config.options.layers[1].scale == 0.0078125F);
  CHECK(config.options.residual_scale == 0.22F);
  CHECK(config.options.logit_scale == 0.1F);
}

TEST_CASE("limits of Mamba-2's steps are refused, and an interval without an end is none") {
  for (const std::string model :
       {R"("model_type":"granitemoehybrid","num_hidden_layers":2,"layer_types":["mamba","attention"])",
        R"("model_type":"nemotron_h","hybrid_override_pattern":"M-*-")"}) {
    const auto error_with = [&](const std::string& limit) {
      return error_of("{" + model + R"(,"time_step_limit":)" + limit + "}");
    };
    CHECK(error_with("[0.0,Infinity]").empty());
    CHECK(error_with(R"([0.0,{"__float__":"Infinity"}])").empty());
    CHECK(error_with("null").empty());
    CHECK(error_with("[0.001,Infinity]").find("time_step_limit") != std::string::npos);
    CHECK(error_with("[0.0,0.1]").find("time_step_limit") != std::string::npos);
  }
}

TEST_CASE("the weights of Granite 4's chosen experts sum to 1, and hidden_act is that of convolutions too") {
  const std::string common =
      R"("model_type":"granitemoehybrid","num_hidden_layers":2,"layer_types":["mamba","attention"])";
  CHECK(parsed("{" + common + "}").options.routing.renormalise);
  CHECK(parsed("{" + common + "}").options.eos_ids == std::vector<std::int64_t>{2});
  CHECK(error_of("{" + common + R"(,"position_embedding_type":"alibi"})").find("position_embedding_type") !=
        std::string::npos);
  CHECK(error_of("{" + common + R"(,"hidden_act":"gelu"})").find("hidden_act is \"gelu\"") != std::string::npos);
}

TEST_CASE("LFM2 lists the layers that attend, and a gate takes a third of its MLP") {
  check_same(parsed(R"({"model_type":"lfm2","num_hidden_layers":16,"hidden_size":2048,"block_ff_dim":12288,)"
                    R"("block_multiple_of":256,"full_attn_idxs":[2,5,8,10,12,14],)" + kBf16 + "}").shape,
             "lfm2-1.2b");
  std::string layers;
  for (int i = 0; i < 24; ++i) {
    const bool attends = i == 2 || i == 6 || i == 10 || i == 14 || i == 18 || i == 21;
    layers += std::string(i > 0 ? "," : "") + (attends ? "\"full_attention\"" : "\"conv\"");
  }
  check_same(parsed(R"({"model_type":"lfm2_moe","num_hidden_layers":24,"layer_types":[)" + layers + "]," + kBf16 +
                    "}").shape,
             "lfm2-8b-a1b");
}

TEST_CASE("older names of LFM2's keys count before the newer ones, as its class has it") {
  const ModelShape s = parsed(R"({"model_type":"lfm2","num_hidden_layers":2,"full_attn_idxs":[1],"block_ff_dim":12288,)"
                              R"("intermediate_size":300,"tie_embedding":false,"tie_word_embeddings":true})")
                           .shape;
  CHECK(s.ffn == 8192);
  CHECK_FALSE(s.tied_head);
}

TEST_CASE("MiniMax-Text-01 says by numbers which layers attend") {
  std::string kinds;
  for (int i = 0; i < 80; ++i) kinds += std::string(i > 0 ? "," : "") + (i % 8 == 7 ? "1" : "0");
  check_same(parsed(R"({"model_type":"minimax_text_01","hidden_size":6144,"intermediate_size":9216,)"
                    R"("num_hidden_layers":80,)"
                    R"("num_attention_heads":64,"head_dim":128,"num_local_experts":32,"vocab_size":200064,)"
                    R"("attn_type_list":[)" + kinds + "]," + kBf16 + "}").shape,
             "minimax-text-01");
}

TEST_CASE("OLMo Hybrid's delta nets have values twice as wide as keys where nothing is said") {
  check_same(parsed(R"({"model_type":"olmo_hybrid",)" + kBf16 + "}").shape, "olmo-hybrid-7b");
}

TEST_CASE("layers that are of no known kind, or do not attend at all, are refused") {
  const auto refused = [](const std::string& fields, const char* why) {
    INFO(fields);
    CHECK(error_of("{" + fields + "}").find(why) != std::string::npos);
  };
  refused(R"("model_type":"qwen3_next","num_hidden_layers":2,"layer_types":["full_attention","rwkv"])", "\"rwkv\"");
  refused(R"("model_type":"qwen3_next","num_hidden_layers":2,"layer_types":["linear_attention","linear_attention"])",
          "no layer attends");
  refused(R"("model_type":"qwen3_next","num_hidden_layers":3,"layer_types":["full_attention"])", "1 entries");
  refused(R"("model_type":"nemotron_h","hybrid_override_pattern":"M-X*")", "\"X\"");
  refused(R"("model_type":"nemotron_h","hybrid_override_pattern":"M-M-")", "no layer attends");
  refused(R"("model_type":"granitemoehybrid","num_hidden_layers":1,"layer_types":["attention"],"mamba_d_head":60)",
          "mamba_n_heads · mamba_d_head");
  refused(R"("model_type":"kimi_linear","linear_attn_config":{"full_attn_layers":[4,28]})", "has 28, expected numbers");
  refused(R"("model_type":"kimi_linear","linear_attn_config":{"full_attn_layers":[4],"kda_layers":[1,2]})",
          "1 and 2 entries, expected 27 together");
  refused(R"("model_type":"kimi_linear","moe_layer_freq":2)", "moe_layer_freq");
  refused(R"("model_type":"nemotron_h","layers_block_type":["mamba","attention","mlp"],"use_conv_bias":false)",
          "use_conv_bias");
  refused(R"("model_type":"qwen3_5_text","mamba_ssm_dtype":"int8")", "mamba_ssm_dtype is \"int8\"");
  refused(R"("model_type":"qwen3_next","hidden_act":"gelu")", "hidden_act is \"gelu\"");
  refused(R"("model_type":"qwen3_next","linear_num_value_heads":5,"linear_num_key_heads":2)",
          "linear_num_value_heads is 5, which is no multiple of linear_num_key_heads, 2");
  refused(R"("model_type":"qwen3_5_moe_text","norm_topk_prob":false)", "norm_topk_prob");
  refused(R"("model_type":"minimax_text_01","num_hidden_layers":3,"attn_type_list":[1,0])", "2 entries");
  refused(R"("model_type":"minimax","shared_intermediate_size":64)", "shared experts");
  for (const char* multiplier : {"1e30", "1e9"}) {
    refused(R"("model_type":"lfm2","full_attn_idxs":[1],"block_ffn_dim_multiplier":)" + std::string(multiplier),
            "block_ffn_dim_multiplier makes an MLP of");
  }
}

}  // namespace kvroof
