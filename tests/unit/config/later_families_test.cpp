// Families of 2024 to 2026 that are built like others: what published files say, and what is refused.
#include <cmath>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"
#include "tests/support/configs.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

double billions(std::uint64_t parameters) { return static_cast<double>(parameters) / 1e9; }

// config.json of tencent/Hunyuan-A13B-Instruct, whose lists have an entry for each of its layers.
std::string hunyuan_a13b(const std::string& topk, const std::string& more = "") {
  return R"({"model_type":"hunyuan_v1_moe","hidden_size":4096,"intermediate_size":3072,"num_hidden_layers":32,)"
         R"("num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"attention_head_dim":128,)"
         R"("vocab_size":128167,"max_position_embeddings":32768,"num_experts":64,"moe_intermediate_size":[3072,3072],)"
         R"("num_shared_expert":[1,1],"use_mixed_mlp_moe":true,"use_qk_norm":true,"use_cla":false,)"
         R"("moe_layer_num_skipped":0,"mlp_bias":false,"attention_bias":false,"rope_theta":10000.0,)"
         R"("rope_scaling":{"alpha":1000.0,"beta_fast":32,"beta_slow":1,"factor":1.0,"mscale":1.0,)"
         R"("mscale_all_dim":1.0,"type":"dynamic"},"tie_word_embeddings":true,"torch_dtype":"bfloat16","moe_topk":)" +
         topk + more + "}";
}

// config.json of baidu/ERNIE-4.5-21B-A3B-PT: what concerns the arithmetic.
std::string ernie_21b(const std::string& more = "") {
  return R"({"model_type":"ernie4_5_moe","hidden_size":2560,"intermediate_size":12288,"num_hidden_layers":28,)"
         R"("num_attention_heads":20,"num_key_value_heads":4,"vocab_size":103424,"moe_num_experts":64,"moe_k":6,)"
         R"("moe_num_shared_experts":2,"moe_intermediate_size":1536,"moe_layer_start_index":1,)"
         R"("moe_layer_interval":1,"use_bias":false,"tie_word_embeddings":true)" +
         more + "}";
}

std::string phimoe(const std::string& scaling) {
  return decoder("phimoe", R"("num_key_value_heads":4,"num_local_experts":4,"num_experts_per_tok":2,)"
                           R"("rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,1],)"
                           R"("long_factor":[2,2,2,2,2,2,2,2],"original_max_position_embeddings":128)" +
                               scaling + "}");
}

}  // namespace

TEST_CASE("Hunyuan-A13B has the parameters of its page, and turns by a base that alpha multiplies once for all") {
  const ModelConfig config = parsed(hunyuan_a13b("[8,8]"));
  CHECK(billions(parameter_count(config.shape)) == Approx(80.4).epsilon(0.01));
  CHECK(billions(active_parameters(config.shape)) == Approx(13).epsilon(0.05));
  CHECK(config.options.norms_after_rotary);
  CHECK(config.options.rotary[0].theta == Approx(1e4 * std::pow(1000.0, 128.0 / 126.0)));
  CHECK(config.options.rotary[0].dynamic_factor == 0);
  CHECK(config.options.routing.renormalise);
}

TEST_CASE("a Hunyuan that would be computed otherwise is refused") {
  check_refused(hunyuan_a13b("[8,4]"), "moe_topk is [8,4], but layers that differ in it are not supported");
  check_refused(hunyuan_a13b("[]"), "moe_topk");
  const std::string text = hunyuan_a13b("8");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    return changed.replace(changed.find(from), from.size(), to);
  };
  check_refused(with("[1,1]", "[2,2]"), "num_shared_expert");
  check_refused(with("[3072,3072]", "[1024,1024]"), "moe_intermediate_size is 1024, but in this family");
  check_refused(with(R"("use_qk_norm":true)", R"("use_qk_norm":false)"), "use_qk_norm");
  check_refused(with(R"("use_cla":false)", R"("use_cla":true)"), "use_cla");
  check_refused(with("skipped\":0", "skipped\":1"), "moe_layer_num_skipped");
  check_refused(with("\"dynamic\"", "\"linear\""), "rope_scaling.alpha");
}

TEST_CASE("ERNIE 4.5 has the parameters of its page, its dense layers before the others, and a bias of the choice") {
  for (const char* end : {"", R"(,"moe_layer_end_index":-1)", R"(,"moe_layer_end_index":27)"}) {
    const ModelConfig config = parsed(ernie_21b(end));
    CHECK(billions(parameter_count(config.shape)) == Approx(21.83).epsilon(0.01));
    CHECK(config.shape.dense_layers == 1);
    CHECK((config.shape.router_bias && config.options.routing.renormalise));
    CHECK(config.options.routing.scores == RouterScores::kSoftmax);
    CHECK(config.options.rotary[0].theta == 5e5);
  }
  check_refused(ernie_21b(R"(,"moe_layer_end_index":20)"), "moe_layer_end_index is 20, but dense layers behind");
  std::string text = ernie_21b();
  text.replace(text.find("interval\":1"), 11, "interval\":2");
  check_refused(text, "moe_layer_interval is 2");
  text = ernie_21b();
  text.replace(text.find("bias\":false"), 11, "bias\":true");
  check_refused(text, "use_bias is true");
}

TEST_CASE("Phi-3.5-MoE says longrope's temperature itself, the same for both tables") {
  const ModelConfig config = parsed(phimoe(R"(,"short_mscale":1.25,"long_mscale":1.25)"));
  CHECK(config.options.rotary[0].magnitude == 1.25F);
  CHECK(config.options.rotary[0].long_from == 128);
  CHECK(config.options.routing.margin == 0.02F);
  check_refused(phimoe(R"(,"short_mscale":1.25,"long_mscale":1.5)"), "long_mscale");
  check_refused(phimoe(R"(,"short_mscale":1.25)"), "rope_scaling.long_mscale is missing");
}

TEST_CASE("EXAONE 3 names its sizes in its own way") {
  const ModelConfig config = parsed(
      R"({"model_type":"exaone","activation_function":"silu","hidden_size":4096,"intermediate_size":14336,)"
      R"("layer_norm_epsilon":1e-05,"num_attention_heads":32,"num_key_value_heads":8,"num_layers":32,)"
      R"("max_position_embeddings":4096,"rope_theta":500000.0,"vocab_size":102400,"tie_word_embeddings":false})");
  CHECK(billions(parameter_count(config.shape)) == Approx(7.82).epsilon(1e-3));
  CHECK(config.options.norm_eps == 1e-5F);
}

TEST_CASE("Minitron turns half of each head and has plain MLPs, and its norms' weights are stored less 1") {
  const ModelConfig config = parsed(
      R"({"model_type":"nemotron","hidden_act":"relu2","hidden_size":3072,"intermediate_size":9216,)"
      R"("max_position_embeddings":4096,"num_attention_heads":24,"num_hidden_layers":32,"num_key_value_heads":8,)"
      R"("norm_eps":1e-05,"rope_theta":10000,"tie_word_embeddings":false,"vocab_size":256000,"kv_channels":128})");
  CHECK(billions(parameter_count(config.shape)) == Approx(4.19).epsilon(1e-3));
  CHECK(config.options.rotary[0].dims == 64);
  CHECK(config.options.norm_offset == 1);
  CHECK(config.options.activation == Activation::kRelu2);
}

TEST_CASE("K-EXAONE slides in three of four layers, and those that see everything know no positions") {
  const std::string sizes =
      R"("num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":32,"num_shared_experts":2)";
  const ModelConfig config = parsed(decoder("exaone_moe", R"("num_key_value_heads":4,"sliding_window":16,)" + sizes));
  CHECK(config.shape.layer_windows == std::vector<std::uint32_t>{16, 16, 16, 0});
  CHECK(config.shape.unturned_layers == std::vector<std::uint32_t>{3});
  CHECK(config.shape.dense_layers == 1);
  CHECK(config.shape.shared_expert_ffn == 64);
  const std::string types = R"(,"num_key_value_heads":4,"mlp_layer_types":["dense","dense","sparse","sparse"])";
  CHECK(parsed(decoder("exaone_moe", sizes + types)).shape.dense_layers == 2);
  const std::string mixed = R"(,"num_key_value_heads":4,"mlp_layer_types":["dense","sparse","dense","sparse"])";
  check_refused(decoder("exaone_moe", sizes + mixed), "mlp_layer_types");
}

TEST_CASE("Kimi K2.5 is Kimi K2 around which lies a tower") {
  const ModelConfig config = parsed(
      R"({"model_type":"kimi_k25","tie_word_embeddings":false,"vision_config":{},"text_config":{)"
      R"("model_type":"kimi_k2","hidden_size":7168,"intermediate_size":18432,"moe_intermediate_size":2048,)"
      R"("num_hidden_layers":61,"num_attention_heads":64,"n_routed_experts":384,"n_shared_experts":1,)"
      R"("num_experts_per_tok":8,"first_k_dense_replace":1,"q_lora_rank":1536,"kv_lora_rank":512,)"
      R"("qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"n_group":1,"topk_group":1,)"
      R"("topk_method":"noaux_tc","scoring_func":"sigmoid","norm_topk_prob":true,"vocab_size":163840,)"
      R"("routed_scaling_factor":2.827,"rope_theta":50000.0}})");
  CHECK(config.options.text_part);
  CHECK(config.shape.family == "deepseek_v3");
  CHECK(billions(parameter_count(config.shape)) == Approx(1026).epsilon(0.01));
  CHECK(billions(active_parameters(config.shape)) == Approx(32).epsilon(0.05));
}

TEST_CASE("Solar Open has experts in every layer") {
  const std::string sizes = R"("num_key_value_heads":4,"n_routed_experts":8,"num_experts_per_tok":2)";
  CHECK(parsed(decoder("solar_open", sizes)).shape.dense_layers == 0);
  check_refused(decoder("solar_open", sizes + R"(,"first_k_dense_replace":1)"), "first_k_dense_replace is 1");
  check_refused(decoder("solar_open", sizes + R"(,"use_qk_norm":true)"), "use_qk_norm is true");
}
