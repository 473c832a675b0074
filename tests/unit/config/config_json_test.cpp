#include "sim/model/config_json.hpp"

#include <string>

#include "tests/catch.hpp"
#include "tests/support/configs.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// The smallest configuration, with more keys.
std::string small(const std::string& more) {
  return R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,)"
         R"("intermediate_size":96,"vocab_size":100)" +
         (more.empty() ? "" : "," + more) + "}";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a first-generation LLaMA configuration has as many KV heads as heads and theta 10000") {
  const ModelConfig config = parsed(golden_text("llama", "config.json"));
  CHECK(config.shape.layers == 2);
  CHECK(config.shape.hidden == 128);
  CHECK(config.shape.heads == 2);
  CHECK(config.shape.kv_heads == 2);
  CHECK(config.shape.head_dim == 64);
  CHECK(config.shape.ffn == 160);
  CHECK(config.shape.vocab == 224);
  CHECK(config.shape.max_positions == 512);
  CHECK(config.shape.tied_head);
  CHECK(config.shape.weight_type == DType::kF16);
  CHECK(config.options.rotary[0].theta == 10000.0);
  CHECK(config.options.rotary[0].dims == 64);
  CHECK(config.options.layers[0].scale == 0.125F);
  CHECK(config.options.norm_eps == 1e-5F);
  CHECK(config.options.bos_ids == std::vector<std::int64_t>{1});
  CHECK(config.options.eos_ids == std::vector<std::int64_t>{2});
}

TEST_CASE("an explicit head_dim holds although it is not hidden_size over heads") {
  const ModelConfig config = parsed(golden_text("llama-gqa", "config.json"));
  CHECK(config.shape.head_dim == 64);
  CHECK(config.shape.v_head_dim == 64);
  CHECK(config.shape.heads == 4);
  CHECK(config.shape.kv_heads == 2);
  CHECK_FALSE(config.shape.tied_head);
  CHECK(config.shape.weight_type == DType::kBF16);
}

TEST_CASE("attention_bias gives q, k, v and output biases, mlp_bias those of the MLP") {
  const ModelShape with = parsed(golden_text("llama-bias", "config.json")).shape;
  CHECK(with.qkv_bias);
  CHECK(with.out_bias);
  CHECK(with.mlp_bias);
  const ModelShape without = parsed(golden_text("llama-gqa", "config.json")).shape;
  CHECK_FALSE(without.qkv_bias);
  CHECK_FALSE(without.out_bias);
  CHECK_FALSE(without.mlp_bias);
}

TEST_CASE("rope_theta is read from the top and from rope_parameters") {
  CHECK(parsed(small(R"("rope_theta":500000)")).options.rotary[0].theta == 500000.0);
  CHECK(parsed(small(R"("rope_parameters":{"rope_type":"default","rope_theta":1e6})")).options.rotary[0].theta == 1e6);
  CHECK(parsed(small("")).options.rotary[0].theta == 10000.0);
}

TEST_CASE("begin and end ids are a number, a list, or none") {
  CHECK(parsed(small(R"("eos_token_id":[7,9])")).options.eos_ids == std::vector<std::int64_t>{7, 9});
  CHECK(parsed(small(R"("eos_token_id":null)")).options.eos_ids.empty());
  CHECK(parsed(small(R"("bos_token_id":0)")).options.bos_ids == std::vector<std::int64_t>{0});
  CHECK(contains(refusal(small(R"("eos_token_id":"x")")), "eos_token_id is \"x\""));
  CHECK(contains(refusal(small(R"("eos_token_id":-1)")), "eos_token_id is -1"));
}

TEST_CASE("kinds and keys of scaled rotary embedding that are not built are refused naming key and value") {
  CHECK(contains(refusal(small(R"("rope_scaling":{"type":"mrope"})")), "rope_scaling.type is \"mrope\""));
  CHECK(contains(refusal(small(R"("rope_scaling":{"type":"mrope"})")), "not supported; known: default, linear"));
  CHECK(contains(refusal(small(R"("rope_parameters":{"rope_type":"yarm"})")), "did you mean yarn?"));
  CHECK(contains(refusal(small(R"("rope_scaling":{"factor":2.0})")), "rope_scaling.factor is 2.0"));
  CHECK(contains(refusal(small(R"("rope_scaling":{"type":"linear","factor":2,"mrope_section":[1]})")),
                 "rope_scaling.mrope_section is [1]"));
  CHECK(contains(refusal(small(R"("rope_scaling":"linear")")), "rope_scaling is \"linear\""));
  CHECK(contains(refusal(small(R"("rope_scaling":{"type":"linear"})")), "rope_scaling.factor is missing"));
  CHECK(contains(refusal(small(R"("rope_scaling":{"type":"linear","factor":0})")), "rope_scaling.factor is 0"));
  CHECK(contains(refusal(small(R"("rope_theta":0.5)")), "rope_theta is 0.5"));
  CHECK(contains(refusal(small(R"("rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_theta":1e4})")),
                 "only one of them"));
  CHECK(parsed(small(R"("rope_scaling":null)")).options.rotary[0].theta == 10000.0);
  CHECK(parsed(small(R"("rope_scaling":{"rope_type":"default"})")).options.rotary[0].theta == 10000.0);
}

TEST_CASE("an unknown model_type is answered with the known ones and the nearest") {
  const std::string message = refusal(R"({"model_type":"lama"})");
  CHECK(contains(message, "\"lama\""));
  CHECK(contains(message, "known: "));
  CHECK(contains(message, "did you mean llama?"));
  CHECK(contains(refusal("{}"), "model_type is missing"));
  CHECK(contains(refusal(R"({"model_type":7})"), "model_type is 7"));
}

TEST_CASE("impossible sizes are refused by name") {
  CHECK(contains(refusal(R"({"model_type":"llama","hidden_size":64})"), "num_hidden_layers is missing"));
  CHECK(contains(refusal(small(R"("max_position_embeddings":0)")), "max_position_embeddings is 0"));
  CHECK(contains(refusal(small(R"("max_position_embeddings":-1)")), "max_position_embeddings is -1"));
  CHECK(contains(refusal(small(R"("max_position_embeddings":16777217)")), "max_position_embeddings is 16777217"));
  CHECK(contains(refusal(small(R"("max_position_embeddings":1.5)")), "max_position_embeddings is 1.5"));
  CHECK(contains(refusal(small(R"("max_position_embeddings":"512")")), "max_position_embeddings is \"512\""));
  CHECK(contains(refusal(small(R"("num_key_value_heads":3)")), "not a multiple of num_key_value_heads (3)"));
  CHECK(contains(refusal(small(R"("head_dim":7)")), "head_dim is 7"));
  CHECK(contains(refusal(small(R"("rms_norm_eps":0)")), "rms_norm_eps is 0"));
  CHECK(contains(refusal(small(R"("rope_theta":-2)")), "rope_theta is -2"));
  CHECK(contains(refusal(small(R"("tie_word_embeddings":1)")), "tie_word_embeddings is 1"));
  CHECK(contains(refusal(small(R"("torch_dtype":"int8")")), "torch_dtype is \"int8\""));
}

TEST_CASE("activations are known by each of their names") {
  const auto activation = [](const std::string& name) {
    return parsed(small(R"("hidden_act":")" + name + "\"")).options.activation;
  };
  for (const char* name : {"gelu", "gelu_python"}) CHECK(activation(name) == Activation::kGelu);
  for (const char* name : {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh", "gelu_pytorch_tanh"}) {
    CHECK(activation(name) == Activation::kGeluTanh);
  }
  for (const char* name : {"silu", "swish"}) CHECK(activation(name) == Activation::kSilu);
}

TEST_CASE("options that change the arithmetic and are not built are refused") {
  CHECK(contains(refusal(small(R"("hidden_act":"mish")")), "hidden_act is \"mish\""));
  CHECK(contains(refusal(small(R"("quantization_config":{"quant_method":"awq","bits":0})")),
                 "quantization_config.bits is 0"));
  CHECK(contains(refusal(small(R"("partial_rotary_factor":0.5)")), "partial_rotary_factor is 0.5"));
}

TEST_CASE("text that is no JSON object is refused") {
  CHECK(contains(refusal(""), "not valid JSON"));
  CHECK(contains(refusal("{\"model_type\":"), "not valid JSON"));
  CHECK(contains(refusal("[1,2]"), "expected a JSON object"));
}

TEST_CASE("a configuration nested beyond reason is refused without recursion") {
  const std::string deep(1'000'000, '[');
  CHECK(contains(refusal("{\"model_type\":" + deep), "nested deeper"));
  CHECK(contains(refusal(small("\"hidden_act\":" + deep + std::string(deep.size(), ']'))), "nested deeper"));
}
