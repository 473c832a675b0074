#include "tests/gpu/suite/random_model.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/engine/random_model.hpp"

namespace kvroof::suite {
namespace {

using nlohmann::json;

struct Published {
  const char* name;
  const char* config;
};
// What the config.json of each repository on Hugging Face says of the model's shape; catalog/models names them.
constexpr Published kPublished[] = {
    {"gpt-j-6b", R"({"model_type":"gptj","activation_function":"gelu_new","n_embd":4096,"n_head":16,"n_layer":28,
      "n_positions":2048,"rotary_dim":64,"vocab_size":50400,"tie_word_embeddings":false,"torch_dtype":"bfloat16"})"},
    {"llama-2-7b", R"({"model_type":"llama","hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,
      "max_position_embeddings":4096,"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
      "rms_norm_eps":1e-5,"tie_word_embeddings":false,"vocab_size":32000,"torch_dtype":"bfloat16"})"},
    {"llama-3-8b", R"({"model_type":"llama","hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
      "max_position_embeddings":8192,"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,
      "rms_norm_eps":1e-5,"rope_theta":500000.0,"tie_word_embeddings":false,"vocab_size":128256,
      "torch_dtype":"bfloat16"})"},
    {"mpt-7b", R"({"model_type":"mpt","d_model":4096,"n_heads":32,"n_layers":32,"expansion_ratio":4,"max_seq_len":2048,
      "vocab_size":50432,"no_bias":true,"attn_config":{"alibi":true,"alibi_bias_max":8},"torch_dtype":"bfloat16"})"},
};

void set_layers(json& config, std::uint32_t layers) {
  for (const char* key : {"n_layer", "n_layers", "num_hidden_layers"}) {
    if (config.contains(key)) config[key] = layers;
  }
}

// Keys of the sizes that a thin model has less of; heads stay of their size.
void make_small(json& config) {
  const auto set = [&](const char* key, int value) {
    if (config.contains(key)) config[key] = value;
  };
  set_layers(config, 2);
  const bool wide = config.contains("n_head");  // heads of 256
  for (const char* width : {"n_embd", "d_model", "hidden_size"}) set(width, wide ? 512 : 256);
  for (const char* heads : {"n_head", "n_heads", "num_attention_heads"}) set(heads, 2);
  if (config.contains("num_key_value_heads")) {
    set("num_key_value_heads", config["num_key_value_heads"] == 8 ? 1 : 2);
  }
  set("intermediate_size", 320);
  set("vocab_size", 96);
}

ModelConfig config_of(const std::string& name, std::uint32_t positions, bool small, std::uint32_t layers) {
  for (const Published& published : kPublished) {
    if (name != published.name) continue;
    json config = json::parse(published.config);
    for (const char* key : {"n_positions", "max_seq_len", "max_position_embeddings"}) {
      if (config.contains(key)) config[key] = std::max(config[key].get<std::uint32_t>(), positions);
    }
    if (small) make_small(config);
    if (layers > 0) set_layers(config, layers);
    return parse_config_json(config.dump()).or_throw(name);
  }
  throw usage_error(fmt::format("there is no random model {}", name));
}

}  // namespace

std::vector<std::string> random_model_names() {
  std::vector<std::string> names;
  for (const Published& published : kPublished) names.emplace_back(published.name);
  return names;
}

Model random_model(const std::string& name, std::uint32_t positions, bool small, std::uint32_t seed,
                   std::uint32_t layers) {
  ModelConfig config = config_of(name, positions, small, layers);
  config.shape.name = name;
  return kvroof::random_model(std::move(config), DType::kBF16, seed);
}

}  // namespace kvroof::suite
