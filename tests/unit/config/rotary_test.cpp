#include "sim/model/rotary.hpp"

#include <cmath>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"
#include "tests/support/configs.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

RotaryRule plain(std::uint32_t dims, double theta) { return plain_rotary(RotaryStyle::kHalfSplit, dims, theta); }

double at(const RotaryRule& rule, std::size_t pair) { return static_cast<double>(rule.inverse_frequencies[pair]); }

// A LLaMA with heads of 128 and a rotary embedding.
RotaryRule llama_rotary(const std::string& keys) {
  return parsed(R"({"model_type":"llama","hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":2,)"
                R"("intermediate_size":96,"vocab_size":100,"max_position_embeddings":131072,)" +
                keys + "}")
      .options.rotary.at(0);
}

}  // namespace

TEST_CASE("pair i of d dimensions turns by theta to the power of -2i/d for each position") {
  const RotaryRule rule = plain(4, 10000);
  CHECK(rule.inverse_frequencies == std::vector<float>{1.0F, 0.01F});
  CHECK(at(plain(128, 5e5), 32) == Approx(0.001414213562).epsilon(1e-6));  // 500000^(-1/2)
}

TEST_CASE("linear scaling divides every frequency") {
  RotaryRule rule = plain(4, 10000);
  scale_linear(rule, 4);
  CHECK(rule.inverse_frequencies == std::vector<float>{0.25F, 0.0025F});
  CHECK(rule.magnitude == 1);
}

TEST_CASE("LLaMA 3.1 keeps wavelengths below 2048, divides those above 8192 by 8, and blends between") {
  const RotaryRule before = plain(128, 5e5);
  RotaryRule rule = before;
  scale_llama3(rule, {8, 1, 4, 8192});
  CHECK(at(rule, 0) == at(before, 0));
  CHECK(at(rule, 28) == at(before, 28));                            // wavelength 1956
  CHECK(at(rule, 29) == Approx(0.0021665707637).epsilon(1e-5));     // 2402: kept to 0.8036210
  CHECK(at(rule, 32) == Approx(0.0005248461610).epsilon(1e-5));     // 4443: kept to 0.2812826
  CHECK(at(rule, 35) == Approx(at(before, 35) / 8).epsilon(1e-7));  // 8219
  CHECK(at(rule, 63) == Approx(2.455140791131609e-06 / 8).epsilon(1e-6));
}

TEST_CASE("YaRN keeps pairs of many turns, divides those of few, and ramps over the indices between") {
  // Qwen2.5 with factor 4 over 32768 tokens: 32 turns at index 23.6 and 1 turn at 39.65, rounded apart to 23 and 40.
  RotaryRule rule = plain(128, 1e6);
  const RotaryRule before = rule;
  scale_yarn(rule, {.factor = 4, .original = 32768, .magnitude = yarn_magnitude(4)});
  CHECK(at(rule, 0) == at(before, 0));
  CHECK(at(rule, 23) == at(before, 23));
  CHECK(at(rule, 31) == Approx(0.0012409377607517 * (8.0 / 17 / 4 + 9.0 / 17)).epsilon(1e-6));
  CHECK(at(rule, 40) == Approx(0.00017782794100389227 / 4).epsilon(1e-6));
  CHECK(at(rule, 63) == Approx(at(before, 63) / 4).epsilon(1e-7));
  CHECK(static_cast<double>(rule.magnitude) == Approx(1.138629436).epsilon(1e-7));  // 0.1 ln 4 + 1
}

TEST_CASE("YaRN without truncation ramps between the exact indices") {
  RotaryRule rule = plain(128, 1e6);
  scale_yarn(rule, {.factor = 4, .original = 32768, .truncate = false});
  const double divided = (31 - 23.5959476083381) / (39.6508807104171 - 23.5959476083381);
  CHECK(at(rule, 31) == Approx(0.0012409377607517 * (divided / 4 + 1 - divided)).epsilon(1e-6));
}

TEST_CASE("where llama3's frequencies meet, a pair is divided or stays, as Llama 4 Scout has it") {
  RotaryRule rule = plain(128, 500000);
  const std::vector<float> unscaled = rule.inverse_frequencies;
  scale_llama3(rule, {16, 1, 1, 8192});
  // Pair i turns once in 2 π · 500,000^(i / 64) tokens: more than 8,192 from i = 35 on.
  for (const std::size_t kept : {0U, 1U, 34U}) CHECK(rule.inverse_frequencies[kept] == unscaled[kept]);
  for (const std::size_t divided : {35U, 36U, 63U}) CHECK(rule.inverse_frequencies[divided] == unscaled[divided] / 16);
}

TEST_CASE("longrope divides each pair by its own factor, and longer prompts by another") {
  RotaryRule rule = plain(4, 10000);
  scale_longrope(rule, {{1, 2}, {4, 5}, 4096, longrope_magnitude(32, 4096)});
  REQUIRE(rule.inverse_frequencies.size() == 2);
  REQUIRE(rule.long_inverse_frequencies.size() == 2);
  CHECK(rule.inverse_frequencies[0] == 1.0F);
  CHECK(rule.inverse_frequencies[1] == Approx(0.005F).epsilon(1e-6));
  CHECK(rule.long_inverse_frequencies[0] == 0.25F);
  CHECK(rule.long_inverse_frequencies[1] == Approx(0.002F).epsilon(1e-6));
  CHECK(rule.long_from == 4096);
  CHECK(static_cast<double>(rule.magnitude) == Approx(1.1902380714).epsilon(1e-7));  // Phi-3-mini-128k
}

TEST_CASE("temperatures are 1 without extension") {
  CHECK(yarn_magnitude(1) == 1);
  CHECK(yarn_magnitude(0.5, 3) == 1);
  CHECK(longrope_magnitude(1, 4096) == 1);
}

TEST_CASE("each kind of rope_scaling is read under its old and its new keys") {
  const std::string llama3 =
      R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,)"
      R"("rope_type":"llama3")";
  const RotaryRule old_form = llama_rotary(R"("rope_theta":500000.0,"rope_scaling":{)" + llama3 + "}");
  const RotaryRule new_form = llama_rotary(R"("rope_parameters":{"rope_theta":500000.0,)" + llama3 + "}");
  CHECK(old_form == new_form);
  CHECK(at(old_form, 63) == Approx(2.455140791131609e-06 / 8).epsilon(1e-6));
  CHECK(at(llama_rotary(R"("rope_scaling":{"type":"linear","factor":4})"), 0) == 0.25);
}

TEST_CASE("original_max_position_embeddings says nothing of linear and dynamic scaling") {
  const auto rule = [](const std::string& type, const std::string& more) {
    return llama_rotary(R"("rope_scaling":{"factor":4,"type":")" + type + "\"" + more + "}");
  };
  for (const char* type : {"linear", "dynamic"}) {
    CHECK(rule(type, R"(,"original_max_position_embeddings":16)") == rule(type, ""));
  }
}

TEST_CASE("dynamic scaling changes nothing up to max_position_embeddings, and the base of longer sequences") {
  RotaryRule rule = llama_rotary(R"("rope_scaling":{"type":"dynamic","factor":4})");
  CHECK(rule.inverse_frequencies == plain(128, 1e4).inverse_frequencies);
  scale_dynamic(rule, 196608, 131072);  // 1.5 times the context: 4 · 1.5 − 3 = 3
  CHECK(at(rule, 0) == 1);
  CHECK(at(rule, 1) == Approx(std::pow(1e4 * std::pow(3.0, 128.0 / 126), -2.0 / 128)).epsilon(1e-6));
  CHECK(at(rule, 63) == Approx(std::pow(1e4 * std::pow(3.0, 128.0 / 126), -126.0 / 128)).epsilon(1e-6));
}

TEST_CASE("YaRN's attention_factor replaces what the factor says, and mscale with mscale_all_dim give a ratio") {
  const auto magnitude = [](const std::string& more) {
    return static_cast<double>(
        llama_rotary(R"("rope_scaling":{"type":"yarn","factor":40,"original_max_position_embeddings":4096)" + more +
                     "}")
            .magnitude);
  };
  CHECK(magnitude("") == Approx(0.1 * std::log(40.0) + 1));
  CHECK(magnitude(R"(,"attention_factor":0.7)") == Approx(0.7));
  CHECK(magnitude(R"(,"mscale":0.707,"mscale_all_dim":0.707)") == Approx(1));
  CHECK(magnitude(R"(,"mscale":1.0,"mscale_all_dim":0.5)") ==
        Approx((0.1 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1)));
  // One of them without the other, or 0, says nothing, and neither does attn_factor.
  for (const char* more : {R"(,"mscale":0.707)", R"(,"mscale_all_dim":0.707)", R"(,"mscale":1.0,"mscale_all_dim":0)",
                           R"(,"attn_factor":0.878)"}) {
    INFO(more);
    CHECK(magnitude(more) == Approx(0.1 * std::log(40.0) + 1));
  }
}

TEST_CASE("a YaRN embedding reaches factor times its original length, whatever max_position_embeddings says") {
  const ModelShape shape =
      parsed(R"({"model_type":"qwen2","hidden_size":64,"num_attention_heads":2,"num_hidden_layers":1,)"
             R"("intermediate_size":96,"vocab_size":100,"max_position_embeddings":32768,)"
             R"("rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768}})")
          .shape;
  CHECK(shape.max_positions == 131072);
}

TEST_CASE("the square of YaRN's temperature multiplies DeepSeek-V2's softmax scale") {
  const ModelConfig config =
      parsed(R"({"model_type":"deepseek_v2","hidden_size":2048,"num_attention_heads":16,"num_hidden_layers":1,)"
             R"("intermediate_size":10944,"vocab_size":100,"max_position_embeddings":163840,"kv_lora_rank":512,)"
             R"("q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,)"
             R"("rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,"mscale":0.707,"mscale_all_dim":0.707,)"
             R"("original_max_position_embeddings":4096,"type":"yarn"}})");
  // 192^-0.5 · (0.1 · 0.707 · ln 40 + 1)²; serving engines' tests of this model write 0.1147213867929261.
  CHECK(static_cast<double>(config.options.layers[0].scale) == Approx(0.1147213868).epsilon(1e-7));
  CHECK(config.options.rotary[0].magnitude == 1);
  CHECK(config.options.rotary[0].dims == 64);
}
