// config.json of the GPT-like families: both generations of keys, defaults, and what is refused.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/core/alibi.hpp"
#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"
#include "tests/support/configs.hpp"

using namespace kvroof;
using namespace kvroof::test;
using nlohmann::json;

namespace {

const std::vector<std::string> kModels = {
    "gpt2",       "cerebras-gpt", "gptj",     "gpt-neox", "gpt-neox-sequential", "falcon",
    "falcon-new", "falcon-alibi", "mpt",          "mpt-clip", "bloom",    "opt",                 "opt-350m"};

// The golden's configuration with other values; null removes a key.
json changed(const std::string& model, const json& changes) {
  json config = json::parse(golden_text(model, "config.json"));
  config.merge_patch(changes);
  return config;
}

ModelConfig with(const std::string& model, const json& changes) { return parsed(changed(model, changes).dump()); }

std::string refusal(const std::string& model, const json& changes) {
  const auto config = parse_config_json(changed(model, changes).dump());
  return config.ok() ? "accepted" : config.error();
}

void check_same(const ModelOptions& a, const ModelOptions& b) {
  CHECK(a.norm_eps == b.norm_eps);
  CHECK(a.activation == b.activation);
  CHECK(a.residual == b.residual);
  CHECK(a.position_offset == b.position_offset);
  CHECK(a.alibi_slopes == b.alibi_slopes);
  CHECK(a.qkv_clip == b.qkv_clip);
  CHECK(a.logit_scale == b.logit_scale);
  CHECK(a.bos_ids == b.bos_ids);
  CHECK(a.eos_ids == b.eos_ids);
  REQUIRE(a.layers.size() == b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) CHECK(a.layers[i].scale == b.layers[i].scale);
  REQUIRE(a.rotary.size() == b.rotary.size());
  for (std::size_t i = 0; i < a.rotary.size(); ++i) {
    CHECK(a.rotary[i].style == b.rotary[i].style);
    CHECK(a.rotary[i].inverse_frequencies == b.rotary[i].inverse_frequencies);
  }
}

}  // namespace

TEST_CASE("a GPT-like configuration in its new form says the same as in its old one") {
  for (const std::string& model : kModels) {
    INFO(model);
    ModelConfig old_form = parsed(golden_text(model, "config.json"));
    const ModelConfig new_form = parsed(golden_text(model, "config.new.json"));
    old_form.shape.weight_type = new_form.shape.weight_type;  // the first files do not name it
    CHECK(shape_to_json(old_form.shape) == shape_to_json(new_form.shape));
    check_same(old_form.options, new_form.options);
  }
}

TEST_CASE("attention scales and ALiBi slopes are those of PyTorch's models") {
  for (const std::string& model : kModels) {
    INFO(model);
    const ModelOptions options = parsed(golden_text(model, "config.json")).options;
    const json attention = json::parse(golden_text(model, "golden.json"))["attention"];
    REQUIRE(options.layers.size() == attention["scale"].size());
    for (std::size_t i = 0; i < options.layers.size(); ++i) {
      CHECK(options.layers[i].scale == Approx(attention["scale"][i].get<double>()).epsilon(1e-6));
    }
    const std::vector<double> slopes = attention.value("alibi_slopes", std::vector<double>{});
    REQUIRE(options.alibi_slopes.size() == slopes.size());
    const double factor = attention.value("alibi_before_scale", false) ? attention["scale"][0].get<double>() : 0;
    CHECK(options.alibi_rounded_scale == Approx(factor).epsilon(1e-6));
    for (std::size_t i = 0; i < slopes.size(); ++i) {
      CHECK(options.alibi_slopes[i] == Approx(slopes[i]).epsilon(1e-6));
    }
  }
}

TEST_CASE("the slopes of numbers of heads that are no power of two are BLOOM's") {
  for (const std::uint32_t heads : {1U, 2U, 3U, 12U, 40U, 71U, 112U}) {
    INFO(heads);
    // As BLOOM makes them: those of the largest power below, then every other one of twice that power.
    std::uint32_t power = 1;
    while (power * 2 <= heads) power *= 2;
    const double base = std::pow(2.0, -std::pow(2.0, -(std::log2(power) - 3)));
    const double extra = std::pow(2.0, -std::pow(2.0, -(std::log2(2 * power) - 3)));
    const std::vector<float> slopes = alibi_slopes(heads);
    REQUIRE(slopes.size() == heads);
    for (std::uint32_t i = 0; i < heads; ++i) {
      const double expected = i < power ? std::pow(base, i + 1) : std::pow(extra, 2 * (i - power) + 1);
      CHECK(slopes[i] == Approx(expected).epsilon(1e-6));
    }
  }
}

TEST_CASE("a head without a file's word is tied in GPT-2, BLOOM, OPT, MPT and Falcon, and not in GPT-J and GPT-NeoX") {
  for (const char* model : {"gpt2", "bloom", "opt", "mpt", "falcon"}) {
    INFO(model);
    CHECK(with(model, {{"tie_word_embeddings", nullptr}}).shape.tied_head);
    CHECK_FALSE(with(model, {{"tie_word_embeddings", false}}).shape.tied_head);
  }
  for (const char* model : {"gptj", "gpt-neox"}) {
    INFO(model);
    CHECK_FALSE(with(model, {{"tie_word_embeddings", nullptr}}).shape.tied_head);
    CHECK(with(model, {{"tie_word_embeddings", true}}).shape.tied_head);
  }
}

TEST_CASE("the MLP is four times as wide as the model where the file does not say") {
  CHECK(with("cerebras-gpt", json::object()).shape.ffn == 192);
  CHECK(with("cerebras-gpt", {{"n_inner", nullptr}}).shape.ffn == 512);
  CHECK(with("gptj", {{"n_inner", nullptr}}).shape.ffn == 512);
  CHECK(with("falcon", json::object()).shape.ffn == 384);
  CHECK(with("falcon", {{"ffn_hidden_size", 100}}).shape.ffn == 100);
  CHECK(with("mpt", {{"expansion_ratio", 2}}).shape.ffn == 192);
}

TEST_CASE("the activation is what the file names, and the family's own where it names none") {
  CHECK(with("gpt2", {{"activation_function", nullptr}}).options.activation == Activation::kGeluTanh);
  CHECK(with("cerebras-gpt", json::object()).options.activation == Activation::kGelu);
  CHECK(with("gpt-neox", {{"hidden_act", "gelu_fast"}}).options.activation == Activation::kGeluTanh);
  CHECK(with("opt", {{"activation_function", nullptr}}).options.activation == Activation::kRelu);
  CHECK(with("opt", {{"activation_function", "gelu"}}).options.activation == Activation::kGelu);
  CHECK(with("bloom", json::object()).options.activation == Activation::kGeluTanh);
  CHECK(with("mpt", json::object()).options.activation == Activation::kGelu);
}

TEST_CASE("scale_attn_weights false leaves q·k unscaled") {
  CHECK(with("gpt2", {{"scale_attn_weights", false}}).options.layers[1].scale == 1.0F);
}

TEST_CASE("sizes are found under each of their names, and names that contradict each other are refused") {
  CHECK(with("gpt2", {{"n_embd", nullptr}, {"hidden_size", 128}}).shape.hidden == 128);
  CHECK(with("bloom", {{"n_embed", nullptr}, {"hidden_size", 48}}).shape.hidden == 48);
  CHECK(with("gpt2", {{"hidden_size", 64}}).shape.hidden == 64);
  CHECK_THAT(refusal("gpt2", {{"hidden_size", 128}}), ContainsSubstring("n_embd is 64, but hidden_size is 128"));
}

TEST_CASE("Falcon has one KV head, groups, or as many as heads") {
  CHECK(with("falcon", {{"multi_query", nullptr}}).shape.kv_heads == 1);
  CHECK(with("falcon-new", json::object()).shape.kv_heads == 2);
  CHECK(with("falcon-new", {{"num_kv_heads", nullptr}}).shape.kv_heads == 4);
  CHECK(with("falcon-alibi", json::object()).shape.kv_heads == 2);
  CHECK(with("falcon-new", {{"num_ln_in_parallel_attn", 1}}).shape.norms_per_layer == 1);
}

TEST_CASE("MPT has grouped and single KV heads, learned or no positions, and a scale of its own") {
  const auto attention = [](const json& changes) { return with("mpt", {{"attn_config", changes}}); };
  const ModelConfig grouped = attention({{"attn_type", "grouped_query_attention"}, {"kv_n_heads", 1}});
  CHECK(grouped.shape.kv_heads == 1);
  CHECK(attention({{"attn_type", "multiquery_attention"}}).shape.kv_heads == 1);
  CHECK(attention({{"softmax_scale", 0.25}}).options.layers[1].scale == 0.25F);
  CHECK(attention({{"qk_ln", true}}).shape.qk_norm == QkNorm::kWhole);
  CHECK(attention({{"alibi", false}}).shape.position == PositionScheme::kLearned);
  CHECK(attention({{"alibi", false}}).shape.position_rows == 128);
  CHECK(with("mpt", {{"attn_config", {{"alibi", false}}}, {"learned_pos_emb", false}}).shape.position ==
        PositionScheme::kNone);
  CHECK(with("mpt", {{"logit_scale", 0.5}}).options.logit_scale == 0.5F);
  // As transformers writes defaults: an object without keys.
  CHECK(with("mpt", {{"attn_config", nullptr}}).shape.position == PositionScheme::kAlibi);
}

TEST_CASE("OPT without biases keeps those of its norms, and without a final norm has none") {
  const ModelShape shape = with("opt", {{"enable_bias", false}}).shape;
  CHECK_FALSE(shape.qkv_bias);
  CHECK_FALSE(shape.mlp_bias);
  CHECK(shape.norm_bias);
  CHECK_FALSE(with("opt", {{"_remove_final_layer_norm", true}}).shape.final_norm);
}

TEST_CASE("keys that change the arithmetic of a GPT-like family and are not built are refused by name and value") {
  struct Case {
    const char* model;
    json changes;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"gpt2", {{"add_cross_attention", true}}, "add_cross_attention is true"},
      {"gpt2", {{"activation_function", "quick_gelu"}}, "activation_function is \"quick_gelu\""},
      {"gptj", {{"rotary", false}}, "rotary is false"},
      {"gpt-neox", {{"rope_scaling", {{"type", "mrope"}}}}, "rope_scaling.type is \"mrope\""},
      {"bloom",
       {{"apply_residual_connection_post_layernorm", true}},
       "apply_residual_connection_post_layernorm is true"},
      {"falcon", {{"apply_residual_connection_post_layernorm", true}},
       "apply_residual_connection_post_layernorm is true"},
      {"falcon-new", {{"parallel_attn", false}}, "parallel_attn is false"},
      {"falcon", {{"num_ln_in_parallel_attn", 2}}, "num_ln_in_parallel_attn is 2"},
      {"falcon-alibi", {{"num_kv_heads", 1}}, "num_kv_heads is 1"},
      {"opt", {{"layer_norm_elementwise_affine", false}}, "layer_norm_elementwise_affine is false"},
      {"mpt", {{"attn_config", {{"prefix_lm", true}}}}, "attn_config.prefix_lm is true"},
      {"mpt", {{"attn_config", {{"rope", true}}}}, "attn_config.rope is true"},
      {"mpt", {{"attn_config", {{"attn_uses_sequence_id", true}}}}, "attn_config.attn_uses_sequence_id is true"},
      {"mpt", {{"attn_config", {{"attn_logit_softcapping", 30}}}}, "attn_config.attn_logit_softcapping is 30"},
      {"mpt", {{"no_bias", false}, {"attn_config", {{"qk_ln", true}}}}, "attn_config.qk_ln is true"},
  };
  for (const Case& c : cases) {
    const std::string message = refusal(c.model, c.changes);
    CHECK_THAT(message, ContainsSubstring(c.message) && ContainsSubstring("not supported"));
  }
}

TEST_CASE("impossible values of GPT-like families are refused by name") {
  struct Case {
    const char* model;
    json changes;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"gpt2", {{"n_head", 3}}, "n_embd (64) over n_head (3) is no head size"},
      {"gpt2", {{"n_layer", 0}}, "n_layer is 0"},
      {"gpt2", {{"vocab_size", nullptr}}, "vocab_size is missing"},
      {"gptj", {{"rotary_dim", 3}}, "rotary_dim is 3"},
      {"gptj", {{"rotary_dim", 66}}, "rotary_dim is 66"},
      {"gptj", {{"rotary_dim", nullptr}}, "accepted"},  // absent: 64, the whole head here
      {"gpt-neox", {{"rotary_pct", 1.5}}, "rotary_pct is 1.5"},
      {"gpt-neox", {{"rotary_pct", 0.001}}, "rotary_pct is 0.001"},
      {"gpt-neox", {{"rotary_emb_base", -1}}, "rotary_emb_base is -1"},
      {"falcon-new", {{"num_kv_heads", 3}}, "num_attention_heads (4) is not a multiple of num_kv_heads (3)"},
      {"opt", {{"word_embed_proj_dim", 0}}, "word_embed_proj_dim is 0"},
      {"mpt", {{"attn_config", 3}}, "attn_config is 3"},
      {"mpt", {{"attn_config", {{"clip_qkv", -8}}}}, "attn_config.clip_qkv is -8"},
      {"mpt", {{"attn_config", {{"attn_type", "sparse"}}}}, "attn_config.attn_type is \"sparse\""},
      {"mpt", {{"norm_type", "rmsnorm"}}, "norm_type is \"rmsnorm\""},
      {"mpt", {{"expansion_ratio", 1e30}}, "ffn is 4294967295"},
      {"mpt", {{"logit_scale", "inv_sqrt_d_model"}}, "logit_scale is \"inv_sqrt_d_model\""},
  };
  for (const Case& c : cases) CHECK_THAT(refusal(c.model, c.changes), ContainsSubstring(c.message));
}
