// Language models within models that take pictures or sounds as well.
#include "sim/model/config_text_part.hpp"

#include <filesystem>
#include <fstream>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

ModelConfig parsed(const std::string& text) { return parse_config_json(text).or_throw("config.json"); }

double billions(const ModelShape& shape) { return static_cast<double>(parameter_count(shape)) / 1e9; }

// config.json of Qwen/Qwen2.5-VL-7B-Instruct: keys of the language model beside those of the whole.
const std::string kQwen25Vl7b =
    R"({"architectures":["Qwen2_5_VLForConditionalGeneration"],"attention_dropout":0.0,"bos_token_id":151643,)"
    R"("eos_token_id":151645,"vision_start_token_id":151652,"hidden_act":"silu","hidden_size":3584,)"
    R"("initializer_range":0.02,"intermediate_size":18944,"max_position_embeddings":128000,"max_window_layers":28,)"
    R"("model_type":"qwen2_5_vl","num_attention_heads":28,"num_hidden_layers":28,"num_key_value_heads":4,)"
    R"("rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":false,)"
    R"("torch_dtype":"bfloat16","use_cache":true,"use_sliding_window":false,"vision_config":{"depth":32,)"
    R"("hidden_size":1280},"rope_scaling":{"type":"mrope","mrope_section":[16,24,24]},"vocab_size":152064})";

// config.json of Qwen/Qwen3-VL-30B-A3B-Instruct, what its language model has.
const std::string kQwen3Vl30b =
    R"({"model_type":"qwen3_vl_moe","tie_word_embeddings":false,"text_config":{"attention_bias":false,)"
    R"("bos_token_id":151643,"decoder_sparse_step":1,"dtype":"bfloat16","eos_token_id":151645,"head_dim":128,)"
    R"("hidden_act":"silu","hidden_size":2048,"intermediate_size":6144,"max_position_embeddings":262144,)"
    R"("mlp_only_layers":[],"model_type":"qwen3_vl_moe_text","moe_intermediate_size":768,"norm_topk_prob":true,)"
    R"("num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":48,)"
    R"("num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_scaling":{"mrope_interleaved":true,)"
    R"("mrope_section":[24,20,20],"rope_type":"default"},"rope_theta":5000000,"vocab_size":151936},)"
    R"("vision_config":{"depth":27,"hidden_size":1152}})";

TEST_CASE("the language model of Qwen2.5-VL-7B is that of Qwen2.5-7B, and turns texts as that does") {
  const ModelConfig config = parsed(kQwen25Vl7b);
  CHECK(config.options.text_part);
  CHECK(config.options.cannot_run.empty());
  CHECK(config.shape.family == "qwen2");
  CHECK(config.shape.weight_type == DType::kBF16);
  CHECK(config.shape.qkv_bias);
  CHECK(config.shape.layer_windows.empty());
  CHECK(billions(config.shape) == Approx(7.6156).epsilon(1e-4));  // Qwen2.5-7B: 7.61 (its page: 6.53 beside embeddings)
  REQUIRE(config.options.rotary.size() == 1);
  CHECK(config.options.rotary[0].theta == 1e6);
  CHECK(config.options.rotary[0].dims == 128);
}

TEST_CASE("the language model of Qwen3-VL-30B-A3B is that of Qwen3-30B-A3B, and is run") {
  const ModelConfig config = parsed(kQwen3Vl30b);
  CHECK(config.shape.family == "qwen3_moe");
  CHECK(billions(config.shape) == Approx(30.53).epsilon(1e-3));  // its page: 30.5 billion
  CHECK(config.shape.experts == 128);
  CHECK(config.options.cannot_run.empty());
}

TEST_CASE("Ministral 3 has the parameters of its card, and its queries grow with their positions") {
  // text_config of mistralai/Ministral-3-8B-Instruct-2512.
  const ModelConfig config = parsed(
      R"({"model_type":"mistral3","dtype":"bfloat16","tie_word_embeddings":false,"text_config":{"head_dim":128,)"
      R"("hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,"max_position_embeddings":262144,)"
      R"("model_type":"ministral3","num_attention_heads":32,"num_hidden_layers":34,"num_key_value_heads":8,)"
      R"("rms_norm_eps":1e-05,"rope_parameters":{"beta_fast":32.0,"beta_slow":1.0,"factor":16.0,)"
      R"("llama_4_scaling_beta":0.1,"max_position_embeddings":262144,"mscale":1.0,"mscale_all_dim":1.0,)"
      R"("original_max_position_embeddings":16384,"rope_theta":1000000.0,"rope_type":"yarn","type":"yarn"},)"
      R"("sliding_window":null,"vocab_size":131072}})");
  CHECK(billions(config.shape) == Approx(8.49).epsilon(1e-3));  // the card: 8.4 of the language model
  CHECK(config.shape.max_positions == 262144);
  CHECK(config.shape.layer_windows.empty());
  CHECK((config.options.query_scale.beta == 0.1F && config.options.query_scale.original == 16384));
  CHECK(config.options.cannot_run.empty());
}

TEST_CASE("what a text part leaves out is what its class assumes") {
  // config.json of llava-hf/llava-1.5-7b-hf: Vicuna's sizes are those of LlamaConfig.
  const ModelConfig vicuna =
      parsed(R"({"model_type":"llava","torch_dtype":"float16","text_config":{"architectures":["LlamaForCausalLM"],)"
             R"("max_position_embeddings":4096,"model_type":"llama","rms_norm_eps":1e-05,"torch_dtype":"float16",)"
             R"("vocab_size":32064},"vision_config":{"hidden_size":1024}})");
  CHECK(billions(vicuna.shape) == Approx(6.7389).epsilon(1e-4));  // LLaMA-7B's 6.7384 and 64 rows more, twice
  CHECK(vicuna.shape.weight_type == DType::kF16);
  // config.json of llava-hf/llava-v1.6-mistral-7b-hf.
  const ModelConfig mistral =
      parsed(R"({"model_type":"llava_next","torch_dtype":"float16","text_config":{"intermediate_size":14336,)"
             R"("max_position_embeddings":32768,"model_type":"mistral","num_key_value_heads":8,"rms_norm_eps":1e-05,)"
             R"("rope_theta":1000000.0,"sliding_window":null,"torch_dtype":"bfloat16","vocab_size":32064}})");
  CHECK(billions(mistral.shape) == Approx(7.2423).epsilon(1e-4));  // Mistral-7B's 7.2417 and 64 rows more, twice
}

TEST_CASE("a text part that does not say what it is, is what the class of the whole has") {
  const auto family = [](const std::string& whole) {
    const Result<ModelConfig> config = parse_config_json(
        R"({"model_type":")" + whole + R"(","text_config":{"hidden_size":64,"intermediate_size":96,"vocab_size":64,)" +
        R"("num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2}})");
    return config.ok() ? config.value().shape.family : config.error();
  };
  CHECK(family("qwen3_vl") == "qwen3");
  CHECK(family("qwen2_5_vl") == "qwen2");
  CHECK(family("glm4v") == "glm4");
  CHECK(family("mistral3") == "mistral");
  CHECK(family("smolvlm") == "llama");
  CHECK(family("internvl_chat").find("model_type is missing") == 0);
}

TEST_CASE("of the whole a tied head holds for the text part, types and quantisation where the part says nothing") {
  const std::string inner = R"("text_config":{"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
                            R"("num_attention_heads":4,"vocab_size":64,"tie_word_embeddings":false)";
  const std::string outer = R"({"model_type":"llava","tie_word_embeddings":true,"torch_dtype":"float16",)"
                            R"("quantization_config":{"quant_method":"awq","bits":4,"group_size":128},)";
  const ModelConfig config = parsed(outer + inner + "}}");
  CHECK(config.shape.tied_head);
  CHECK(config.shape.weight_type == DType::kF16);
  CHECK(config.options.stored.name == "int4");
  CHECK(parsed(outer + inner + R"(,"dtype":"bfloat16"}})").shape.weight_type == DType::kBF16);
}

TEST_CASE("a model around another that is not known is refused by its name, and a language model is none") {
  const auto refused = [](const std::string& text) {
    const Result<ModelConfig> config = parse_config_json(text);
    REQUIRE_FALSE(config.ok());
    return config.error();
  };
  CHECK(refused(R"({"model_type":"mllama","text_config":{"hidden_size":64}})").find("\"mllama\"") == 11);
  CHECK(refused(R"({"model_type":"llava","text_config":{"model_type":"mamba"}})").find("\"mamba\"") == 11);
  CHECK(refused(R"({"model_type":"llava"})").find("\"llava\"") == 11);
  CHECK_FALSE(text_part_of_config(R"({"model_type":"llama","text_config":{"hidden_size":64}})"));
}

TEST_CASE("a shape of a text part says that it is one") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "kvroof-text-part";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kQwen25Vl7b;
  CHECK(find_model_shape(folder.string(), std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog").name ==
        "kvroof-text-part (text part)");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kvroof
