// The families' configurations: what each golden folder says, and what is refused.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"
#include "tests/support/configs.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

const fs::path kGoldens = fs::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

std::string latent(const std::string& more) {
  return decoder("deepseek_v2",
                 R"("kv_lora_rank":32,"qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":16,"n_routed_experts":8,)"
                 R"("num_experts_per_tok":2,"moe_intermediate_size":32)" +
                     (more.empty() ? "" : "," + more));
}

std::string experts(const std::string& family, const std::string& more = "") {
  return decoder(family, R"("num_experts":4,"num_experts_per_tok":2,"shared_expert_intermediate_size":32)" +
                             (more.empty() ? "" : "," + more));
}

using Windows = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("the new form of every family's configuration says the same as the old one") {
  std::size_t compared = 0;
  for (const auto& entry : fs::directory_iterator(kGoldens)) {
    if (!fs::exists(entry.path() / "config.new.json")) continue;
    INFO(entry.path().filename().string());
    const ModelConfig old_form = parsed(golden_text(entry.path().filename().string()));
    const ModelConfig new_form = parsed(golden_text(entry.path().filename().string(), "config.new.json"));
    ModelShape old_shape = old_form.shape;
    old_shape.weight_type = new_form.shape.weight_type;  // first configurations leave it out; the checkpoint decides
    CHECK(shape_to_json(old_shape) == shape_to_json(new_form.shape));
    CHECK(old_form.options.rotary == new_form.options.rotary);
    CHECK(old_form.options.norm_eps == new_form.options.norm_eps);
    CHECK(old_form.options.activation == new_form.options.activation);
    CHECK(old_form.options.eos_ids == new_form.options.eos_ids);
    ++compared;
  }
  CHECK(compared >= 28);
}

TEST_CASE("windows are those of every layer, of the even ones, of the upper ones, or of five of six") {
  CHECK(golden("mistral").shape.layer_windows == Windows{16, 16});
  CHECK(golden("gemma2").shape.layer_windows == Windows{8, 0});
  CHECK(golden("qwen2-window").shape.layer_windows == Windows{0, 8});
  CHECK(golden("gemma3").shape.layer_windows == Windows{8, 8, 8, 8, 8, 0});
  CHECK(golden("qwen2").shape.layer_windows.empty());          // switched off
  CHECK(golden("phi3-longrope").shape.layer_windows.empty());  // longer than any sequence
  CHECK(golden("mixtral").shape.layer_windows.empty());        // null
}

TEST_CASE("an absent sliding_window of Mistral is 4096 tokens, a null none") {
  const auto windows = [&](const std::string& more) {
    std::string text = decoder("mistral", R"("num_key_value_heads":4)" + more);
    text.replace(text.find("512"), 3, "32768");
    return parsed(text).shape.layer_windows;
  };
  CHECK(windows("") == Windows(4, 4096));
  CHECK(windows(R"(,"sliding_window":null)").empty());
}

TEST_CASE("sliding layers of Gemma 3 have the local rotary embedding, full ones the scaled global one") {
  const ModelConfig config = golden("gemma3-multimodal");
  CHECK(config.shape.family == "gemma3_text");
  CHECK(config.shape.weight_type == DType::kBF16);  // said outside text_config
  CHECK(config.options.rotary[0].theta == 1e6);
  CHECK(config.options.rotary[0].inverse_frequencies[0] == 0.125F);  // linear, factor 8
  CHECK(config.options.rotary[1].theta == 1e4);
  CHECK(config.options.rotary[1].inverse_frequencies[0] == 1);
  CHECK(config.options.layers[0].rotary == 1);
  CHECK(config.options.layers[1].rotary == 0);
}

TEST_CASE("a published Gemma 3 leaves out what its class assumes") {
  // config.json of google/gemma-3-4b-it, text_config, as published.
  const ModelShape shape =
      parsed(R"({"model_type":"gemma3","text_config":{"hidden_size":2560,"intermediate_size":10240,)"
             R"("model_type":"gemma3_text","num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},)"
             R"("sliding_window":1024},"torch_dtype":"bfloat16"})")
          .shape;
  CHECK(shape.heads == 8);
  CHECK(shape.kv_heads == 4);
  CHECK(shape.head_dim == 256);
  CHECK(shape.vocab == 262208);
  CHECK(shape.window(0) == 1024);
  CHECK(shape.window(5) == 0);
  CHECK(shape.tied_head);
}

TEST_CASE("Gemma scales embeddings by the root of the hidden size, and its first release's gelu is the tanh form") {
  const ModelOptions options = golden("gemma").options;
  CHECK(options.embedding_scale == 8);  // √64
  CHECK(options.norm_offset == 1);
  CHECK(options.activation == Activation::kGeluTanh);
  const ModelOptions second = golden("gemma2").options;
  CHECK(static_cast<double>(second.layers[0].scale) == Approx(0.17677669529));  // 32^-0.5
  CHECK(second.layers[0].softcap == 5);
  CHECK(second.logit_softcap == 3);
}

TEST_CASE("Gemma 3 caps the logits of the head and not those of attention, whatever attn_logit_softcapping says") {
  const std::string caps = R"("attn_logit_softcapping":50.0,"final_logit_softcapping":30.0)";
  const ModelOptions third = parsed(decoder("gemma3_text", caps)).options;
  CHECK(third.layers[0].softcap == 0);
  CHECK(third.logit_softcap == 30);
  CHECK(parsed(decoder("gemma2", caps)).options.layers[0].softcap == 50);
}

TEST_CASE("Gemma 1 takes hidden_activation, or else hidden_act, whose gelu is the tanh form as well") {
  const auto activation = [](const std::string& more) { return parsed(decoder("gemma", more)).options.activation; };
  CHECK(activation("") == Activation::kGeluTanh);
  CHECK(activation(R"("hidden_act":"gelu","hidden_activation":null)") == Activation::kGeluTanh);
  CHECK(activation(R"("hidden_act":"gelu")") == Activation::kGeluTanh);
  CHECK(activation(R"("hidden_act":null,"hidden_activation":null)") == Activation::kGeluTanh);
  CHECK(activation(R"("hidden_act":"relu")") == Activation::kRelu);
  CHECK(activation(R"("hidden_act":"gelu","hidden_activation":"silu")") == Activation::kSilu);
  CHECK(parsed(decoder("gemma2", R"("hidden_activation":null)")).options.activation == Activation::kGeluTanh);
}

TEST_CASE("experts: how many, how large, which layers, and how their outputs are weighted") {
  const ModelConfig mixtral = golden("mixtral");
  CHECK(mixtral.shape.experts == 4);
  CHECK(mixtral.shape.experts_per_token == 2);
  CHECK(mixtral.shape.expert_ffn == 64);
  CHECK(mixtral.options.routing.renormalise);
  const ModelConfig qwen2 = golden("qwen2-moe");
  CHECK(qwen2.shape.expert_ffn == 48);
  CHECK(qwen2.shape.shared_expert_ffn == 96);
  CHECK(qwen2.shape.shared_expert_gate);
  CHECK_FALSE(qwen2.options.routing.renormalise);
  CHECK(golden("qwen3-moe").options.routing.renormalise);
  const ModelConfig deepseek = golden("deepseek-v2-groups");
  CHECK(deepseek.shape.dense_layers == 1);
  CHECK(deepseek.shape.shared_expert_ffn == 32);
  CHECK(deepseek.options.routing.groups == 4);
  CHECK(deepseek.options.routing.top_groups == 2);
  CHECK(deepseek.options.routing.scale == 2.5F);
}

TEST_CASE("a latent model caches one row of the latent and the rotary part, whose beginning is v") {
  const ModelShape shape = golden("deepseek-v2").shape;
  CHECK(shape.kv_heads == 1);
  CHECK(shape.head_dim == 64 + 32);
  CHECK(shape.v_head_dim == 64);
  CHECK(kv_bytes_per_token(shape, DType::kF16).value == 2 * (64 + 32) * 2);
}

TEST_CASE("a head is tied or not as the family's class assumes when the file is silent") {
  for (const char* family : {"gemma", "gemma2", "gemma3_text", "cohere", "starcoder2"}) {
    INFO(family);
    CHECK(parsed(decoder(family)).shape.tied_head);
  }
  for (const char* family : {"llama", "qwen2", "qwen3", "phi3", "olmo2", "stablelm"}) {
    INFO(family);
    CHECK_FALSE(parsed(decoder(family)).shape.tied_head);
  }
}

TEST_CASE("a key that the file leaves out has the value that the family's class in transformers 5.24 assumes") {
  const auto of_eight = [](const std::string& family) {
    std::string text = decoder(family);
    text.replace(text.find("heads\":4"), 8, "heads\":8");
    return parsed(text);
  };
  CHECK(of_eight("mistral").shape.kv_heads == 8);
  CHECK(of_eight("gemma2").shape.kv_heads == 4);
  CHECK(of_eight("starcoder2").shape.kv_heads == 2);
  CHECK(of_eight("seed_oss").shape.kv_heads == 8);
  CHECK(of_eight("ernie4_5").shape.kv_heads == 2);
  CHECK(of_eight("cohere").options.rotary[0].theta == 5e5);
  CHECK(of_eight("cohere2").options.rotary[0].theta == 1e4);
  const auto moe = [&](const std::string& family) {
    const ModelShape shape = of_eight(family).shape;
    return std::vector{shape.kv_heads, shape.experts, shape.experts_per_token, shape.expert_ffn,
                       shape.shared_expert_ffn};
  };
  CHECK(moe("mixtral") == std::vector{8U, 8U, 2U, 96U, 0U});
  CHECK(moe("olmoe") == std::vector{8U, 64U, 8U, 96U, 0U});
  CHECK(moe("qwen2_moe") == std::vector{8U, 60U, 4U, 1408U, 5632U});
  CHECK(moe("qwen3_moe") == std::vector{4U, 128U, 8U, 768U, 0U});
  const ModelShape deepseek = parsed(latent("")).shape;
  CHECK(deepseek.shared_expert_ffn == 2 * 32);
  CHECK(deepseek.latent_q_rank == 1536);
  CHECK(parsed(latent(R"("q_lora_rank":null)")).shape.latent_q_rank == 0);
}

TEST_CASE("the head of a multi-modal Gemma 3 is tied as the whole says, not as its text part does") {
  const auto tied = [](const std::string& outer, const std::string& inner) {
    return parsed(R"({"model_type":"gemma3",)" + outer + R"("text_config":{"hidden_size":64,"intermediate_size":96,)" +
                  inner + R"("num_hidden_layers":2}})")
        .shape.tied_head;
  };
  CHECK(tied("", ""));
  CHECK_FALSE(tied(R"("tie_word_embeddings":false,)", ""));
  CHECK(tied("", R"("tie_word_embeddings":false,)"));
  CHECK_FALSE(tied(R"("tie_word_embeddings":false,)", R"("tie_word_embeddings":true,)"));
}

TEST_CASE("Command-R's context is model_max_length") {
  CHECK(parsed(decoder("cohere", R"("model_max_length":131072)")).shape.max_positions == 131072);
}

TEST_CASE("Granite's four multipliers scale embeddings, attention in the place of 1/√head size, residuals and logits") {
  const ModelOptions granite = golden("granite").options;
  CHECK(granite.embedding_scale == 12);
  CHECK(granite.residual_scale == 0.22F);
  CHECK(granite.logit_scale == 1 / 6.0F);  // logits_scaling divides
  for (const LayerRule& layer : granite.layers) CHECK(layer.scale == 0.4F);
  CHECK(parsed(decoder("granite")).options.layers[0].scale == 1);
  check_refused(decoder("granite", R"("logits_scaling":0)"), "logits_scaling");
}

TEST_CASE("what a family does not build is refused by key and value") {
  check_refused(decoder("starcoder2", R"("mlp_type":"gated")"), "mlp_type is \"gated\"");
  check_refused(decoder("starcoder2", R"("norm_type":"rms_norm")"), "norm_type is \"rms_norm\"");
  check_refused(decoder("gemma3_text", R"("use_bidirectional_attention":true)"), "use_bidirectional_attention is true");
  check_refused(decoder("qwen3", R"("layer_types":["full_attention","linear_attention","full_attention","x"])"),
                "\"linear_attention\", which is not supported");
  check_refused(decoder("qwen2", R"("layer_types":["full_attention"])"), "layer_types has 1 entries");
  check_refused(decoder("qwen2", R"("layer_types":"full_attention")"), "expected a list of texts");
  check_refused(experts("qwen2_moe", R"("use_sliding_window":true)"), "use_sliding_window is true");
  check_refused(experts("qwen3_moe", R"("decoder_sparse_step":2)"), "decoder_sparse_step is 2");
  check_refused(experts("qwen3_moe", R"("mlp_only_layers":[0])"), "mlp_only_layers is [0]");
  check_refused(experts("qwen3_moe", R"("num_experts_per_tok":5)"), "num_experts_per_tok is 5");
  check_refused(decoder("phi3", R"("partial_rotary_factor":1.5)"), "partial_rotary_factor is 1.5");
  check_refused(decoder("olmo2", R"("quantization_config":{"quant_method":"modelopt"})"),
                "quant_algo is missing");
}

TEST_CASE("what DeepSeek-V2's code does not build, and V3's routing, is refused by key and value") {
  CHECK(parsed(latent("")).shape.latent());
  check_refused(latent(R"("scoring_func":"sigmoid")"), "scoring_func is \"sigmoid\"");
  check_refused(latent(R"("topk_method":"noaux_tc")"), "topk_method is \"noaux_tc\"");
  check_refused(latent(R"("moe_layer_freq":2)"), "moe_layer_freq is 2");
  check_refused(latent(R"("attention_bias":true)"), "attention_bias is true");
  check_refused(latent(R"("norm_topk_prob":true)"), "norm_topk_prob is true");
  check_refused(latent(R"("topk_method":"group_limited_greedy","n_group":3,"topk_group":1)"),
                "multiple of n_group (3)");
  check_refused(latent(R"("topk_method":"group_limited_greedy","n_group":8,"topk_group":1)"),
                "num_experts_per_tok is 2");
  check_refused(latent(R"("topk_method":"group_limited_greedy")"), "n_group is missing");
  check_refused(latent(R"("kv_lora_rank":1000000)"), "kv_lora_rank is 1000000");
  check_refused(latent(R"("n_shared_experts":-1)"), "n_shared_experts is -1");
}

TEST_CASE("DeepSeek-V3's experts are scored by sigmoids and chosen with a bias, in groups, GLM-4.5's without groups") {
  const ModelConfig v3 = golden("deepseek_v3");
  CHECK(v3.shape.latent());
  CHECK(v3.shape.latent_q_rank == 24);
  CHECK(v3.shape.dense_layers == 1);
  const RoutingRule& rule = v3.options.routing;
  CHECK((rule.scores == RouterScores::kSigmoid && rule.renormalise));
  CHECK((rule.groups == 4 && rule.top_groups == 2 && rule.group_best == 2 && rule.scale == 2.5F));
  const ModelConfig glm = golden("glm4_moe");
  CHECK((glm.shape.qkv_bias && !glm.shape.out_bias && glm.shape.qk_norm == QkNorm::kHead));
  CHECK(glm.options.rotary[0].dims == glm.shape.head_dim / 2);
  CHECK((glm.options.routing.renormalise && glm.options.routing.groups == 1));
  check_refused(decoder("glm4_moe", R"("num_key_value_heads":2,"scoring_func":"softmax")"),
                "scoring_func is \"softmax\"");
  check_refused(decoder("glm4_moe", R"("num_key_value_heads":2,"topk_method":"greedy")"), "topk_method is \"greedy\"");
  check_refused(decoder("glm4_moe", R"("num_key_value_heads":2,"n_group":128,"topk_group":9)"),
                "a group is ranked by its two best");
  check_refused(decoder("deepseek_v3", R"("attention_bias":true)"), "attention_bias is true");
}

TEST_CASE("gpt-oss has sinks, biases, clamped gates and windows on even layers, and may have experts in MXFP4") {
  const ModelConfig plain = golden("gpt_oss");
  CHECK((plain.shape.attention_sinks && plain.shape.router_logit_bias && !plain.shape.router_bias));
  CHECK((plain.shape.qkv_bias && plain.shape.out_bias && plain.shape.mlp_bias));
  CHECK(plain.shape.layer_windows == std::vector<std::uint32_t>{8, 0, 8});
  CHECK(plain.options.activation == Activation::kClampedSwiglu);
  CHECK((plain.options.routing.renormalise && plain.options.routing.scores == RouterScores::kSoftmax));
  CHECK_FALSE(plain.options.mxfp4_experts);
  CHECK(golden("gpt_oss-mxfp4").options.mxfp4_experts);
  CHECK(plain.shape.weight_type == DType::kBF16);  // of which config.json says nothing
  const auto gpt_oss = [](const std::string& more) { return decoder("gpt_oss", R"("num_key_value_heads":2)" + more); };
  // Without a rotation in config.json it is that of the published models: YaRN by 32 with ends between pairs.
  const RotaryRule unsaid = parsed(gpt_oss("")).options.rotary[0];
  const std::string published = R"(,"rope_theta":150000,"rope_scaling":{"rope_type":"yarn","factor":32,"beta_fast":32,)"
                                R"("beta_slow":1,"truncate":false,"original_max_position_embeddings":4096})";
  CHECK(unsaid == parsed(gpt_oss(published)).options.rotary[0]);
  CHECK(unsaid.magnitude == Approx(0.1 * std::log(32.0) + 1));
  check_refused(gpt_oss(R"(,"swiglu_limit":8)"), "swiglu_limit is 8");
  check_refused(gpt_oss(R"(,"hidden_act":"gelu")"), "hidden_act is \"gelu\"");
  std::string odd = gpt_oss(R"(,"quantization_config":{"quant_method":"mxfp4"})");
  odd.replace(odd.find("96"), 2, "80");
  check_refused(odd, "intermediate_size is 80");
}

TEST_CASE("longrope needs a factor for each pair, and lists of numbers") {
  const auto phi3 = [](const std::string& factors) {
    return decoder("phi3", R"("rope_scaling":{"type":"longrope",)" + factors + "}");
  };
  check_refused(phi3(R"("short_factor":[1,2],"long_factor":[1,2])"), "short_factor has 2 numbers");
  check_refused(phi3(R"("short_factor":["a"],"long_factor":[1])"), "expected a list of numbers above 0");
  check_refused(phi3(R"("short_mscale":1.1)"), "short_mscale is 1.1");
  CHECK(parsed(phi3(R"("short_factor":[1,1,1,1,1,1,1,1],"long_factor":[2,2,2,2,2,2,2,2])"))
            .options.rotary[0]
            .long_inverse_frequencies[0] == 0.5F);
}

TEST_CASE("biases that a family's code does not know are none, whatever attention_bias and mlp_bias say") {
  const auto biases = [](const std::string& family) {
    const ModelShape shape = parsed(decoder(family, R"("num_key_value_heads":2,"attention_bias":true,"mlp_bias":true)"))
                                 .shape;
    return std::vector<bool>{shape.qkv_bias, shape.out_bias, shape.mlp_bias};
  };
  for (const char* family : {"mistral", "mixtral", "phi3", "exaone4"}) {
    INFO(family);
    CHECK(biases(family) == std::vector<bool>{false, false, false});
  }
  CHECK(biases("qwen2") == std::vector<bool>{true, false, false});
  CHECK(biases("qwen3") == std::vector<bool>{true, true, false});
  for (const char* family : {"llama", "granite", "smollm3"}) {
    INFO(family);
    CHECK(biases(family) == std::vector<bool>{true, true, true});
  }
  CHECK(biases("seed_oss") == std::vector<bool>{true, false, true});
}

TEST_CASE("Phi-3's original length is the one outside of rope_scaling, 4096 where the file has none there") {
  const auto long_from = [](const std::string& more) {
    return parsed(decoder("phi3", R"("rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,1],)"
                                  R"("long_factor":[2,2,2,2,2,2,2,2],"original_max_position_embeddings":64})" +
                                      more))
        .options.rotary[0]
        .long_from;
  };
  CHECK(long_from(R"(,"original_max_position_embeddings":32)") == 32);
  CHECK(long_from("") == 4096);
}

TEST_CASE("layers without positions are every fourth, those that are listed, or those that see everything") {
  using Layers = std::vector<std::uint32_t>;
  const auto unturned = [](const std::string& family, const std::string& more) {
    const ModelConfig config = parsed(decoder(family, more));
    for (std::uint32_t i = 0; i < config.shape.layers; ++i) {
      const bool turns = config.options.rotary[config.options.layers[i].rotary].dims > 0;
      CHECK(turns == (std::ranges::count(config.shape.unturned_layers, i) == 0));
    }
    return config.shape.unturned_layers;
  };
  CHECK(unturned("smollm3", "") == Layers{3});
  CHECK(unturned("smollm3", R"("no_rope_layer_interval":2)") == Layers{1, 3});
  CHECK(unturned("smollm3", R"("no_rope_layers":[0,1,1,0])") == Layers{0, 3});
  CHECK(unturned("cohere2", "") == Layers{3});
  CHECK(unturned("cohere2", R"("sliding_window_pattern":2)") == Layers{1, 3});
  CHECK(unturned("exaone4", R"("head_dim":16)") == Layers{3});
  CHECK(unturned("exaone4", R"("sliding_window":null,"sliding_window_pattern":null)").empty());
  CHECK(unturned("llama", "").empty());
  CHECK(golden("exaone4").shape.unturned_layers == Layers{2});
  check_refused(decoder("smollm3", R"("no_rope_layers":[1,1])"), "no_rope_layers has 2 entries");
}

TEST_CASE("SmolLM3 may slide where it knows no positions") {
  const std::string window = R"("no_rope_layer_interval":2,"sliding_window":16,"use_sliding_window":)";
  CHECK(parsed(decoder("smollm3", window + "true")).shape.layer_windows == Windows{0, 16, 0, 16});
  CHECK(parsed(decoder("smollm3", window + "false")).shape.layer_windows.empty());
}

TEST_CASE("Phi with norms of q and k is refused") {
  check_refused(decoder("phi", R"("qk_layernorm":true)"), "qk_layernorm");
  CHECK(parsed(decoder("phi")).options.rotary[0].dims == 8);  // half of a head
}

TEST_CASE("OLMoE that clamps q, k and v is refused") {
  check_refused(experts("olmoe", R"("clip_qkv":8.0)"), "clip_qkv");
  CHECK(parsed(experts("olmoe", R"("clip_qkv":null)")).shape.qk_norm == QkNorm::kWhole);
}
