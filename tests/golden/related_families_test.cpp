// Families that are built like another one, on the weights of its golden: what transformers 5.24 computes of them in
// float32.
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/model_folder.hpp"

using namespace kvroof;
using namespace kvroof::test;
using nlohmann::json;

namespace {

constexpr double kClose = 1e-4;  // of the largest reference value

// The golden's configuration with other values, of which nulls take keys away, and its tensors but those with a word of
// `left_out` in their names.
Model related(const std::string& golden, const json& changes, const std::vector<std::string>& left_out = {}) {
  std::ifstream file(kGoldenModels / golden / "config.json");
  json config = json::parse(file);
  config.merge_patch(changes);
  Tensors tensors = golden_tensors(golden);
  for (const std::string& word : left_out) {
    std::erase_if(tensors, [&](const StoredContent& t) { return t.name.find(word) != std::string::npos; });
  }
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << config.dump();
  write_tensors(folder.path() / "model.safetensors", tensors);
  return load_model(folder.path(), DType::kF32);
}

SafetensorsFile values_of(const std::string& golden) {
  return open_tensors(kGoldenModels / golden / "golden.safetensors");
}

// Of the first six logits behind the golden's prompt of 37 tokens.
double error_of(const Model& model, const std::string& golden, const std::array<float, 6>& expected) {
  const std::vector<float> logits = prompt_logits(model, integers(values_of(golden), "ids_37"));
  const auto last = logits.end() - static_cast<std::ptrdiff_t>(model.config.shape.vocab);
  return relative_error({last, last + 6}, {expected.begin(), expected.end()});
}

// Of all logits of that prompt, which are the golden's.
double error_of_same(const Model& model, const std::string& golden) {
  const SafetensorsFile values = values_of(golden);
  return relative_error(prompt_logits(model, integers(values, "ids_37")), floats(values, "logits_37"));
}

}  // namespace

TEST_CASE("InternLM3 computes what LLaMA computes") {
  CHECK(error_of_same(related("llama-gqa", {{"model_type", "internlm3"}}), "llama-gqa") <= kClose);
}

TEST_CASE("GLM-4.7-Flash computes what DeepSeek-V3 computes, with its dense layers where mlp_layer_types says") {
  const json changes = {{"model_type", "glm4_moe_lite"}, {"mlp_layer_types", {"dense", "sparse"}}};
  CHECK(error_of_same(related("deepseek_v3", changes), "deepseek_v3") <= kClose);
}

TEST_CASE("Ministral slides in the layers that layer_types names") {
  const Model model = related(
      "mistral", {{"model_type", "ministral"}, {"layer_types", {"full_attention", "sliding_attention"}}});
  CHECK(error_of(model, "mistral", {0.244878F, -0.744808F, -0.536999F, -1.301578F, -0.10663F, 8.723994F}) <= kClose);
}

TEST_CASE("CWM slides in all layers but every fourth, beginning with the first") {
  const Model model = related("mistral", {{"model_type", "cwm"}, {"rope_theta", 5e4}, {"sliding_window", 8}});
  CHECK(error_of(model, "mistral", {1.58499F, 3.458603F, -0.811595F, -0.115639F, 4.30954F, -1.12634F}) <= kClose);
}

TEST_CASE("Helium turns adjacent pairs") {
  const Model model = related("llama", {{"model_type", "helium"}, {"num_key_value_heads", 2}, {"head_dim", 64}});
  CHECK(error_of(model, "llama", {1.872834F, -0.330351F, 4.784941F, -0.299667F, 2.969173F, 0.124331F}) <= kClose);
}

TEST_CASE("the first GLM-4 is the later one without norms of outputs") {
  const Model model = related("glm4", {{"model_type", "glm"}}, {"post_self_attn_layernorm", "post_mlp_layernorm"});
  CHECK(error_of(model, "glm4", {1.331824F, -1.551265F, -0.019644F, -0.546595F, -3.467183F, 2.38334F}) <= kClose);
}

TEST_CASE("OLMo 3 scales the rotary embedding of full layers alone, and the others turn by its own base") {
  const Model model = related("olmo2", {{"model_type", "olmo3"},
                                        {"sliding_window", 8},
                                        {"rope_theta", 1e4},
                                        {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}},
                                        {"layer_types", {"full_attention", "sliding_attention"}}});
  CHECK(error_of(model, "olmo2", {-1.175122F, -2.785154F, 3.721158F, -1.758188F, 3.562497F, -0.996919F}) <= kClose);
}

TEST_CASE("dots.llm1 is GLM-4.5 that turns whole heads") {
  const json changes = {{"model_type", "dots1"},
                        {"attention_bias", false},
                        {"partial_rotary_factor", nullptr},
                        {"sliding_window", nullptr}};
  const Model model = related("glm4_moe", changes, {"_proj.bias", "eh_proj"});
  CHECK(error_of(model, "glm4_moe", {-0.689705F, 0.974227F, 0.596812F, 1.650251F, 1.480395F, 0.887031F}) <= kClose);
}

TEST_CASE("a prompt beyond the context turns by the base that dynamic scaling has for its length") {
  Model model = related(
      "llama", {{"max_position_embeddings", 16}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}});
  const auto ids = integers(values_of("llama"), "ids_37");
  CHECK_THROWS_WITH(check_prompts(model.config, {ids}), Catch::Contains("the context of the model is 16"));
  CHECK_FALSE(stretch_context(model.config, {{1, 2}}, 100));
  CHECK(stretch_context(model.config, {{1, 2}, ids}, 100));
  CHECK(model.config.shape.max_positions == 137);
  CHECK_NOTHROW(check_prompts(model.config, {ids}));
  CHECK(error_of(model, "llama", {-0.258724F, 2.718882F, 3.189698F, -0.722202F, -0.189355F, 1.537878F}) <= kClose);
}
