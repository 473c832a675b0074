// config.json of models whose layers of attention are not all alike, or that hold a state beside attention.
#include <filesystem>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

using Layers = std::vector<std::uint32_t>;

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelConfig parsed(const std::string& text) { return parse_config_json(text).or_throw("config.json"); }

std::string error_of(const std::string& text) {
  const Result<ModelConfig> config = parse_config_json(text);
  return config ? "" : config.error();
}

void check_same(const ModelShape& read, const std::string& catalog_name) {
  INFO(catalog_name);
  ModelShape expected = find_model_shape(catalog_name, kCatalog), found = read;
  expected.name = found.name;
  CHECK(shape_to_json(found) == shape_to_json(expected));
}

// Parameters of transformers 5.24, and its cache after 21 tokens: elements of k and v in all layers, where a layer with
// a window of 8 has one token more than transformers, which leaves out the one that comes.
void check_counts(const std::string& text, std::uint64_t parameters, std::uint64_t a_token, std::uint64_t of_21) {
  INFO(text);
  const ModelShape s = parsed(text).shape;
  CHECK(parameter_count(s) == parameters);
  CHECK(kv_bytes_per_token(s, DType::kF16).value == 2 * a_token);
  CHECK(kv_bytes(s, DType::kF16, 21).value == 2 * of_21);
  const Result<ModelShape> back = shape_from_json(shape_to_json(s));
  REQUIRE(back);
  CHECK(shape_to_json(back.value()) == shape_to_json(s));
}

std::string repeated(const std::string& names, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += (i > 0 ? "," : "") + names;
  return all;
}

const std::string kBf16 = R"("dtype":"bfloat16")";
const std::string kSlides = R"("sliding_attention")", kSees = R"("full_attention")";
const std::string kFiveOfSix = repeated(kSlides, 5) + "," + kSees;
const std::string kSmall = R"("vocab_size":64,"hidden_size":32,"intermediate_size":48,"max_position_embeddings":64,)";

}  // namespace

TEST_CASE("Llama 4 sees chunks in three of four layers, which turn, and its text model is within it") {
  const std::string common = R"("model_type":"llama4_text","attention_chunk_size":8192,"hidden_size":5120,)"
      R"("intermediate_size":8192,"intermediate_size_mlp":16384,"num_attention_heads":40,"num_hidden_layers":48,)"
      R"("num_key_value_heads":8,"num_experts_per_tok":1,"no_rope_layers":[],"rope_theta":500000.0,)"
      R"("vocab_size":202048,"torch_dtype":"bfloat16",)";
  const ModelConfig scout = parsed(
      R"({"model_type":"llama4","text_config":{)" + common +
      R"("num_local_experts":16,"interleave_moe_layer_step":1,"max_position_embeddings":10485760,"use_qk_norm":true,)"
      R"("rope_scaling":{"factor":16.0,"high_freq_factor":1.0,"low_freq_factor":1.0,)"
      R"("original_max_position_embeddings":8192,"rope_type":"llama3"}}})");
  check_same(scout.shape, "llama-4-scout");
  CHECK(scout.options.text_part);
  CHECK(scout.options.cannot_run.find("chunks of tokens") != std::string::npos);
  CHECK(parameter_count(scout.shape) == 107769861120);
  const ModelShape maverick =
      parsed("{" + common + R"("num_local_experts":128,"interleave_moe_layer_step":2,"rope_scaling":null,)"
             R"("max_position_embeddings":1048576,"use_qk_norm":false})").shape;
  check_same(maverick, "llama-4-maverick");
  CHECK(parameter_count(maverick) == 400711848960);
}

TEST_CASE("Llama 4's lists of layers count before its periods") {
  const std::string small = R"({"model_type":"llama4_text",)" + kSmall +
      R"("intermediate_size_mlp":80,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,)"
      R"("num_local_experts":4,"attention_chunk_size":8,)";
  check_counts(small + R"("num_hidden_layers":6,"interleave_moe_layer_step":2})", 115488, 192, 1952);
  const ModelShape listed = parsed(small + R"("num_hidden_layers":3,"no_rope_layers":[0,1,1],"moe_layers":[1]})").shape;
  CHECK(listed.unturned_layers == Layers{0});
  CHECK(listed.layer_windows == Layers{0, 8, 8});
  CHECK(listed.dense_layers == 2);
  const ModelShape dense =
      parsed(small + R"("num_hidden_layers":2,"moe_layers":[],"interleave_moe_layer_step":0})").shape;
  CHECK(dense.experts == 0);
  CHECK(dense.ffn == 80);
  CHECK(error_of(small + R"("num_hidden_layers":2,"moe_layers":[2]})") ==
        "moe_layers has 2, expected numbers of layers below 2");
  CHECK(error_of(small + R"("num_hidden_layers":2,"layer_types":["chunked_attention"]})").find("1 entries") !=
        std::string::npos);
}

TEST_CASE("Gemma 4's layers that see everything have wider heads, fewer KV heads, and v of k's projection") {
  const std::string large = R"({"model_type":"gemma4","tie_word_embeddings":true,"text_config":{)"
      R"("model_type":"gemma4_text","hidden_size":5376,"intermediate_size":21504,"num_hidden_layers":60,)"
      R"("num_attention_heads":32,"num_key_value_heads":16,"num_global_key_value_heads":4,"head_dim":256,)"
      R"("global_head_dim":512,"sliding_window":1024,"attention_k_eq_v":true,"hidden_size_per_layer_input":0,)"
      R"("max_position_embeddings":262144,"num_kv_shared_layers":0,"final_logit_softcapping":30.0,)"
      R"("rope_parameters":{"full_attention":{"partial_rotary_factor":0.25,"rope_theta":1000000.0,)"
      R"("rope_type":"proportional"},"sliding_attention":{"rope_theta":10000.0,"rope_type":"default"}},)" + kBf16 +
      R"(,"layer_types":[)" + repeated(kFiveOfSix, 10) + "]}}";
  const ModelConfig config = parsed(large);
  check_same(config.shape, "gemma-4-31b");
  CHECK(parameter_count(config.shape) == 30697345280);
  CHECK(config.shape.rows_of_token(0) == 16);
  CHECK(config.shape.rows_of_token(5) == 8);  // of 4 heads that are twice as wide
  CHECK(config.options.logit_softcap == 30);
  CHECK(config.options.cannot_run.find("different heads") != std::string::npos);
  check_counts(R"({"model_type":"gemma4_text",)" + kSmall +
                   R"("num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":4,"head_dim":8,)"
                   R"("global_head_dim":16,"num_global_key_value_heads":1,"attention_k_eq_v":true,)"
                   R"("hidden_size_per_layer_input":0,"enable_moe_block":true,"num_experts":6,"top_k_experts":2,)"
                   R"("moe_intermediate_size":20,"sliding_window":8,"layer_types":[)" +
                   repeated(kSlides + "," + kSees, 2) + "]}",
               85912, 192, 2368);
}

TEST_CASE("the last layers of small Gemma 4 and Gemma 3n attend to rows of earlier ones") {
  const std::string gemma4 = R"({"model_type":"gemma4_text",)" + kSmall +
      R"("vocab_size_per_layer_input":60,"num_hidden_layers":8,"num_attention_heads":4,"num_key_value_heads":2,)"
      R"("head_dim":8,"global_head_dim":16,"hidden_size_per_layer_input":6,"use_double_wide_mlp":true,)"
      R"("sliding_window":8,"layer_types":[)" + kSlides + "," + kSlides + "," + kSees + "," + kSlides + "," + kSees +
      "," + kSlides + "," + kSlides + "," + kSees + "]";
  check_counts(gemma4 + R"(,"num_kv_shared_layers":3})", 91382, 224, 3456);
  CHECK(error_of(gemma4 + R"(,"num_kv_shared_layers":8})").find("num_kv_shared_layers is 8") != std::string::npos);
  CHECK(error_of(gemma4 + R"(,"num_kv_shared_layers":7})").find("no layer before those") != std::string::npos);
  check_counts(R"({"model_type":"gemma3n_text",)" + kSmall +
                   R"("vocab_size_per_layer_input":60,"num_hidden_layers":6,"num_attention_heads":4,)"
                   R"("num_key_value_heads":2,"head_dim":8,"hidden_size_per_layer_input":6,"num_kv_shared_layers":2,)"
                   R"("laurel_rank":5,"sliding_window":8,"layer_types":[)" +
                   repeated(kSlides + "," + kSees, 3) + "]}",
               62662, 128, 1856);
}

TEST_CASE("published sizes of Gemma 3n and the other Gemma 4 are those of their models") {
  const std::string e2b = R"({"model_type":"gemma4_text","hidden_size":1536,"intermediate_size":6144,)"
      R"("num_hidden_layers":35,"num_attention_heads":8,"num_key_value_heads":1,"num_kv_shared_layers":20,)"
      R"("use_double_wide_mlp":true,"layer_types":[)" +
      repeated(repeated(kSlides, 4) + "," + kSees, 7) + "]," + kBf16 + "}";
  check_same(parsed(e2b).shape, "gemma-4-e2b");
  check_same(parsed(R"({"model_type":"gemma4_text","hidden_size":2560,"intermediate_size":10240,)"
                    R"("num_hidden_layers":42,"num_key_value_heads":2,"num_kv_shared_layers":18,)" + kBf16 + "}").shape,
             "gemma-4-e4b");
  check_same(parsed(R"({"model_type":"gemma4_text","hidden_size":2816,"intermediate_size":2112,)"
                    R"("num_attention_heads":16,"num_key_value_heads":8,"num_global_key_value_heads":2,)"
                    R"("sliding_window":1024,"attention_k_eq_v":true,"hidden_size_per_layer_input":0,)"
                    R"("enable_moe_block":true,"num_experts":128,"top_k_experts":8,"moe_intermediate_size":704,)"
                    R"("max_position_embeddings":262144,)" + kBf16 + "}").shape,
             "gemma-4-26b-a4b");
  check_same(parsed(R"({"model_type":"gemma4_unified","text_config":{"hidden_size":3840,"intermediate_size":15360,)"
                    R"("num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":8,)"
                    R"("num_global_key_value_heads":1,"attention_k_eq_v":true,)" + kBf16 + "}}").shape,
             "gemma-4-12b");
  check_same(parsed(R"({"model_type":"gemma3n","text_config":{)" + kBf16 + "}}").shape, "gemma-3n-e4b");
  check_same(parsed(R"({"model_type":"gemma3n_text","num_hidden_layers":30,"num_kv_shared_layers":10,)"
                    R"("intermediate_size":[)" + repeated("8192", 30) + "]," + kBf16 + "}").shape,
             "gemma-3n-e2b");
  CHECK(error_of(R"({"model_type":"gemma3n_text","intermediate_size":[8192,4096]})").find("layers that differ in it") !=
        std::string::npos);
}

TEST_CASE("files of transformers 5 say the heads of Gemma 4's layers one by one") {
  const auto with = [](const std::string& five, const std::string& eleven) {
    return R"({"model_type":"gemma4_text","num_hidden_layers":12,"attention_k_eq_v":true,"hidden_size":2560,)"
           R"("per_layer_config":{"5":)" + five + R"(,"11":)" + eleven + "}}";
  };
  const std::string heads = R"({"head_dim":128,"num_key_value_heads":2})";
  const ModelShape s = parsed(with(heads, heads)).shape;
  CHECK(s.other.layers == Layers{5, 11});
  CHECK(s.other.head_dim == 128);
  CHECK(s.other.kv_heads == 2);
  CHECK(error_of(with(heads, R"({"head_dim":256})")).find("per_layer_config is only supported") == 0);
}

TEST_CASE("MiMo-V2-Flash has twice the KV heads and sinks under a window, and v is narrower than k") {
  const std::string flash = R"({"model_type":"mimo_v2_flash","attention_bias":false,"head_dim":192,"v_head_dim":128,)"
      R"("hidden_size":4096,"intermediate_size":16384,"layernorm_epsilon":1e-05,"max_position_embeddings":262144,)"
      R"("moe_intermediate_size":2048,"moe_layer_freq":[0,)" + repeated("1", 47) +
      R"(],"n_group":1,"n_routed_experts":256,"n_shared_experts":null,"num_attention_heads":64,)"
      R"("num_experts_per_tok":8,"num_hidden_layers":48,"num_key_value_heads":4,"partial_rotary_factor":0.334,)"
      R"("rope_theta":5000000,"routed_scaling_factor":null,"scoring_func":"sigmoid","sliding_window":128,)"
      R"("sliding_window_size":128,"swa_head_dim":192,"swa_num_attention_heads":64,"swa_num_key_value_heads":8,)"
      R"("swa_rope_theta":10000,"swa_v_head_dim":128,"topk_group":1,"topk_method":"noaux_tc","vocab_size":152576,)"
      R"("add_full_attention_sink_bias":false,"add_swa_attention_sink_bias":true,"hybrid_layer_pattern":[0,1,1,1,1,)" +
      repeated("0,1,1,1,1,1", 7) + ",0]," + kBf16 + "}";
  check_same(parsed(flash).shape, "mimo-v2-flash");
  CHECK(parameter_count(parsed(flash).shape) == 308778768832 + 47 * 256);  // with the biases that choose experts
  check_counts(R"({"model_type":"mimo_v2_flash",)" + kSmall +
                   R"("moe_intermediate_size":20,"num_hidden_layers":6,"num_attention_heads":8,)"
                   R"("num_key_value_heads":2,"head_dim":12,"v_head_dim":8,"n_routed_experts":8,)"
                   R"("num_experts_per_tok":2,"sliding_window":8})",
               130752 + 5 * 8, 400, 4240);
}

TEST_CASE("Step 3.5 has more query heads under a window, and a gate of each head") {
  const std::string small = R"({"model_type":"step3p5",)" + kSmall +
      R"("moe_intermediate_size":20,"share_expert_dim":24,"num_hidden_layers":4,"num_attention_heads":4,"head_dim":8,)"
      R"("sliding_window":8,)";
  check_counts(small + R"("num_key_value_heads":2,"n_routed_experts":8,"num_experts_per_tok":2,)"
                   R"("num_sliding_attention_heads":6,"mlp_layer_types":["dense","dense","sparse","sparse"],)"
                   R"("layer_types":[)" + kSees + "," + repeated(kSlides, 3) + "]}",
               65568 + 2 * 8, 128, 1440);
  std::string experts;
  for (int i = 3; i < 45; ++i) experts += (i > 3 ? "," : "") + std::to_string(i);
  check_same(parsed(R"({"model_type":"step3p7","text_config":{"vocab_size":128896,"max_position_embeddings":262144,)"
                    R"("sliding_window":512,"attention_other_setting":{"num_attention_heads":96},)"
                    R"("moe_layers_enum":")" + experts + R"(","layer_types":[)" +
                    repeated(kSees + "," + repeated(kSlides, 3), 12) + "]," + kBf16 + "}}").shape,
             "step-3.5-flash");
  // As published files name them, with a layer behind the last one.
  check_counts(small + R"("num_attention_groups":2,"moe_num_experts":8,"moe_top_k":2,"rope_theta":[1e4,1e4,1e4,1e4],)"
                   R"("num_nextn_predict_layers":1,"moe_layers_enum":"2, 3,4","use_head_wise_attn_gate":true,)"
                   R"("attention_other_setting":{"attention_type":"sliding_attention","num_attention_heads":6,)"
                   R"("num_attention_groups":2,"head_dim":8},"layer_types":[)" + kSees + "," + repeated(kSlides, 4) +
                   "]}",
               65568 + 2 * 8, 128, 1440);
  CHECK(error_of(small + R"("num_attention_groups":2,"moe_layers_enum":"2;3"})").find("moe_layers_enum") == 0);
}

TEST_CASE("Hunyuan 3 has experts behind its dense layers") {
  const ModelShape s = parsed(R"({"model_type":"hy_v3",)" + kBf16 + "}").shape;
  CHECK(parameter_count(s) == 295033528320 + 79 * 192);  // with the biases that choose experts
  check_counts(R"({"model_type":"hy_v3",)" + kSmall +
                   R"("moe_intermediate_size":20,"num_hidden_layers":3,"num_attention_heads":4,)"
                   R"("num_key_value_heads":2,"head_dim":8,"num_experts":8,"num_experts_per_tok":2})",
               53264 + 2 * 8, 96, 21 * 96);
}

TEST_CASE("LongCat-Flash has attention and an MLP twice in each layer, and experts that do nothing hold nothing") {
  // transformers makes matrices of those experts too, which no checkpoint has: 2 · 2,048 · 6,144 each.
  const ModelShape s = parsed(R"({"model_type":"longcat_flash","num_layers":28,)" + kBf16 + "}").shape;
  CHECK(parameter_count(s) == 741053585408 + 28 * 768 - std::uint64_t{28} * 256 * 2 * 2048 * 6144);
  CHECK(s.layers == 56);
  CHECK(s.experts_per_token == 8);  // of 12, a third of which does nothing
  check_counts(R"({"model_type":"longcat_flash",)" + kSmall +
                   R"("ffn_hidden_size":48,"expert_ffn_hidden_size":20,"num_layers":2,"num_attention_heads":4,)"
                   R"("q_lora_rank":12,"kv_lora_rank":8,"qk_nope_head_dim":6,"qk_rope_head_dim":4,"v_head_dim":6,)"
                   R"("moe_topk":3,"n_routed_experts":8,"zero_expert_num":4})",
               74224 + 2 * 12 - 2 * 4 * 40 * 32, 4 * (8 + 4), 21 * 4 * (8 + 4));
}

TEST_CASE("Bamba lists its layers of attention, and all of Falcon-H1's attend and hold a state") {
  check_same(parsed(R"({"model_type":"bamba","attn_layer_indices":[9,18,27],"mamba_d_state":128,)" + kBf16 + "}").shape,
             "bamba-9b");
  const std::string small = kSmall + R"("num_attention_heads":4,"num_key_value_heads":2,"mamba_d_state":16,)"
      R"("mamba_n_groups":2,"mamba_d_head":8,)";
  check_counts(R"({"model_type":"bamba",)" + small + R"("num_hidden_layers":4,"attn_layer_indices":[1],)"
                   R"("mamba_n_heads":8})",
               53416, 32, 21 * 32);
  const std::string falcon = R"({"model_type":"falcon_h1",)" + small +
                             R"("num_hidden_layers":3,"mamba_d_ssm":48,"mamba_n_heads":6)";
  check_counts(falcon + "}", 49638, 96, 21 * 96);
  check_counts(falcon + R"(,"mamba_rms_norm":true})", 49782, 96, 21 * 96);
  const ModelShape s = parsed(falcon + "}").shape;
  CHECK(s.mixers() == 3);
  // Three layers of 6 heads of 8 · 16 in 32 bits, and three rows of a convolution over 48 + 2 · 2 · 16 channels.
  CHECK(state_bytes(s, DType::kBF16).value == 3 * (6 * 8 * 16 * 4 + 3 * 112 * 2));
  CHECK(error_of(falcon + R"(,"projectors_bias":true})").find("projectors_bias") == 0);
  check_same(parsed(R"({"model_type":"falcon_h1","vocab_size":261120,"hidden_size":5120,"intermediate_size":21504,)"
                    R"("num_hidden_layers":72,"num_attention_heads":20,"num_key_value_heads":4,"head_dim":128,)"
                    R"("mamba_d_ssm":4096,"mamba_n_heads":32,"mamba_d_head":128,"mamba_n_groups":2,)"
                    R"("max_position_embeddings":262144,)" + kBf16 + "}").shape,
             "falcon-h1-34b");
}

TEST_CASE("Jamba's channels each have a state, and experts are in every other layer") {
  check_same(parsed(R"({"model_type":"jamba",)" + kBf16 + "}").shape, "jamba-mini");
  check_same(parsed(R"({"model_type":"jamba","hidden_size":8192,"intermediate_size":24576,"num_hidden_layers":72,)"
                    R"("num_attention_heads":64,)" + kBf16 + "}").shape,
             "jamba-large");
  const std::string small = R"({"model_type":"jamba",)" + kSmall +
      R"("num_hidden_layers":6,"num_attention_heads":4,"num_key_value_heads":2,"attn_layer_period":3,)"
      R"("num_experts":4,"mamba_d_state":16,)" + kBf16;
  check_counts(small + R"(,"attn_layer_offset":1})", 119976, 64, 21 * 64);
  // 64 channels of 16 in four layers, and three rows of its convolution.
  CHECK(state_bytes(parsed(small + R"(,"attn_layer_offset":1})").shape, DType::kBF16).value ==
        4 * 2 * (64 * 16 + 3 * 64));
  CHECK(error_of(small + R"(,"attn_layer_offset":3})") ==
        "attn_layer_offset is 3, expected less than attn_layer_period (3)");
}

TEST_CASE("models of layers that are not alike have as many parameters as transformers makes of them") {
  // Without biases that choose experts, which it does not count, and scalars of Gemma's layers.
  const std::pair<const char*, std::uint64_t> counted[] = {
      {"gemma-4-31b", 30697345280},  {"gemma-4-26b-a4b", 25233141760}, {"gemma-4-12b", 11907350272},
      {"gemma-4-e2b", 4628569344},   {"gemma-4-e4b", 7463013376},      {"gemma-3n-e4b", 6835235568},
      {"gemma-3n-e2b", 4435182688},  {"bamba-9b", 9778138240},         {"falcon-h1-34b", 33642221312},
      {"jamba-mini", 51570323328},   {"jamba-large", 398555145696},    {"mimo-v2-flash", 308778768832 + 47 * 256},
      {"step-3.5-flash", 196956118272 + 42 * 288}};
  for (const auto& [name, parameters] : counted) {
    INFO(name);
    CHECK(parameter_count(find_model_shape(name, kCatalog)) == parameters);
  }
}

TEST_CASE("a language model under the name of the whole, or beside its keys, is the text model") {
  const std::string sizes = kSmall + R"("num_hidden_layers":6,"num_attention_heads":4,"num_key_value_heads":2,)"
                            R"("num_kv_shared_layers":0)";
  for (const std::string name : {"llama4", "gemma4", "gemma3n"}) {
    const std::string keys = R"({"model_type":")" + name + R"(",)";
    const ModelShape inner = parsed(keys + R"("text_config":)" + keys + sizes + "}}").shape;
    CHECK(inner.family == name + "_text");
    CHECK(shape_to_json(inner) == shape_to_json(parsed(keys + sizes + "}").shape));
  }
  CHECK(parsed(R"({"model_type":"step3p7","text_config":{"model_type":"step3p7_text",)" + sizes + "}}").shape.family ==
        "step3p5");
}

TEST_CASE("sizes of other layers that do not fit together are refused") {
  const auto problem = [](const std::string& change) {
    std::string json = shape_to_json(find_model_shape("gemma-4-e2b", kCatalog));
    const std::string key = change.substr(0, change.find(':'));
    const std::size_t at = json.find(key), end = json.find_first_of(",\n", at);
    json.replace(at, end - at, change);
    const Result<ModelShape> read = shape_from_json(json);
    return read ? std::string() : read.error();
  };
  CHECK(problem(R"("other_heads": 8)").empty());
  CHECK(problem(R"("other_heads": 0)") == "a size of other_layers is 0, expected 1 to 65536");
  CHECK(problem(R"("other_head_dim": 500)").find("rows of 1 KV heads of 500 + 512") == 0);
  CHECK(problem(R"("sharing_layers": 35)") == "sharing_layers is 35, expected fewer than the 35 layers");
  CHECK(problem(R"("layer_embedding": 0)").find("layer_embedding is 0 of 262144 rows") == 0);
  CHECK(problem(R"("other_kv_heads": 3)") == "other_heads is 8, not a multiple of other_kv_heads 3");
}

}  // namespace kvroof
