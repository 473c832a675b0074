// What quantization_config says of how a checkpoint stores its weights.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "sim/core/files.hpp"
#include "sim/model/config_file.hpp"
#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"
#include "tests/support/configs.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::string fp8_llama(const std::string& quantisation) {
  return decoder("llama", R"("quantization_config":{)" + quantisation + "}");
}

std::string compressed(const std::string& weights) {
  return fp8_llama(R"("quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{)" + weights + "}}}");
}

}  // namespace

TEST_CASE("checkpoints in FP8 are known by each of the names that they are published under") {
  CHECK_FALSE(parsed(decoder("llama")).options.fp8.used);
  CHECK(golden("deepseek_v3-fp8").options.fp8 == Fp8Storage{true, 24, 40});
  CHECK(golden("smollm3-fp8-channel").options.fp8 == Fp8Storage{true});
  for (const char* known : {R"("quant_method":"fp8","activation_scheme":"static")", R"("quant_method":"fbgemm_fp8")",
                            R"("quant_method":"modelopt","quant_algo":"FP8")"}) {
    INFO(known);
    CHECK(parsed(fp8_llama(known)).options.fp8 == Fp8Storage{true});
  }
  CHECK(parsed(compressed(R"("type":"float","num_bits":8,"strategy":"block","block_structure":[128,128])"))
            .options.fp8 == Fp8Storage{true, 128, 128});
}

TEST_CASE("of checkpoints that the engine does not unpack the bits of a weight are known, scales included") {
  const auto stored = [](const std::string& config) {
    const ModelOptions options = parsed(config).options;
    CHECK(options.cannot_run.find("run in FP8 (E4M3) and, of gpt-oss, in MXFP4") != std::string::npos);
    CHECK(options.stored.layer_bits == options.stored.expert_bits);
    return std::pair(std::string(options.stored.name), options.stored.layer_bits);
  };
  using Stored = std::pair<std::string, double>;
  // A scale of 16 bits and, where there is one, a zero point as wide as a weight for each group.
  CHECK(stored(fp8_llama(R"("quant_method":"awq","bits":4,"group_size":128,"zero_point":true)")) ==
        Stored("int4", 4 + 20.0 / 128));
  CHECK(stored(fp8_llama(R"("quant_method":"gptq","bits":4,"group_size":32,"sym":true)")) ==
        Stored("int4", 4 + 16.0 / 32));
  CHECK(stored(fp8_llama(R"("quant_method":"gptq","bits":8,"group_size":-1)")) == Stored("int8-wo", 8));
  CHECK(stored(compressed(R"("type":"int","num_bits":4,"strategy":"group","group_size":128)")) ==
        Stored("int4", 4 + 16.0 / 128));
  CHECK(stored(compressed(R"("type":"int","num_bits":8,"strategy":"channel"},"input_activations":{"num_bits":8)")) ==
        Stored("int8", 8));
  CHECK(stored(compressed(R"("type":"float","num_bits":4,"group_size":16)")) == Stored("nvfp4", 0));
  CHECK(stored(fp8_llama(R"("quant_method":"modelopt","quant_algo":"NVFP4")")) == Stored("nvfp4", 0));
  // QLoRA, section 3: a constant for 64 weights is 0.5 bit a weight in 32 bits, 0.127 quantised once more.
  CHECK(stored(fp8_llama(R"("quant_method":"bitsandbytes","load_in_4bit":true)")) == Stored("int4", 4.5));
  const double twice = stored(fp8_llama(R"("quant_method":"bitsandbytes","load_in_4bit":true,)"
                                        R"("bnb_4bit_use_double_quant":true)")).second;
  CHECK(twice == Approx(4.127).margin(5e-4));
  CHECK(stored(fp8_llama(R"("quant_method":"exl2","bits":4.65,"lm_head_bits":6)")) == Stored("bpw", 4.65));
}

TEST_CASE("of a mixture of experts whose attention is left in all layers the experts alone are packed") {
  const auto bits = [](const std::string& ignored) {
    const ModelConfig config = parsed(decoder("mixtral", R"("num_local_experts":8,"num_key_value_heads":2,)"
                                              R"("quantization_config":{"quant_method":"compressed-tensors",)"
                                              R"("config_groups":{"a":{"weights":{"type":"int","num_bits":4,)"
                                              R"("group_size":32}}},"ignore":["lm_head")" + ignored + "]}"));
    CHECK(config.options.stored.expert_bits == 4.5);
    CHECK(config.options.stored.plain_share == 0);
    return config.options.stored.layer_bits;
  };
  CHECK(bits("") == 4.5);
  CHECK(bits(R"(,"re:.*self_attn.*")") == 16);
  CHECK(bits(R"(,"model.layers.*.self_attn")") == 16);
  CHECK(bits(R"(,"model.layers.0.self_attn*")") == 4.5);  // of one layer
  std::string each;
  for (int layer = 0; layer < 4; ++layer) {
    for (const char* matrix : {"q", "k", "v"}) {
      each += fmt::format(R"(,"model.layers.{}.self_attn.{}_proj")", layer, matrix);
    }
  }
  CHECK(bits(each) == 4.5);  // the output is packed
  CHECK(bits(each + R"x(,"re:.*self_attn\\.(kv_b_proj|o_norm)")x") == 4.5);
  CHECK(bits(each + R"(,"re:.*layers\\.\\d+\\.self_attn\\.o_proj")") == 16);
}

TEST_CASE("of a dense model it is known which share of the parameters its file leaves") {
  // Of a layer: q and o of 64 · 64, k and v of 64 · 32, gate, up and down of 64 · 256, two norms of 64.
  const auto share = [](const std::string& list) {
    const std::string shape = R"("hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,)"
                              R"("intermediate_size":256,"num_hidden_layers":4,)";
    return parsed(R"({"model_type":"llama","vocab_size":128,"max_position_embeddings":512,"rms_norm_eps":1e-6,)"
                  R"("tie_word_embeddings":false,)" + shape + R"("quantization_config":{"quant_method":"fbgemm_fp8",)" +
                  list + "}}").options.stored.plain_share;
  };
  const double attention = 2 * 64 * 64 + 2 * 64 * 32, mlp = 3 * 64 * 256, layer = attention + mlp;
  CHECK(share(R"("modules_to_not_convert":["lm_head"])") == 0);
  CHECK(share(R"("modules_to_not_convert":["self_attn"])") == Approx(attention / layer).margin(0.005));
  CHECK(share(R"("ignore":["re:.*self_attn.*","re:vision_tower.*mlp"])") == Approx(attention / layer).margin(0.005));
  CHECK(share(R"("exclude_modules":["model.layers.1.mlp.down_proj","model.layers.1.self_attn.k_proj"])") ==
        Approx((mlp / 3 + 64 * 32) / (4 * layer)).margin(0.005));
  CHECK(share(R"("ignore":["model.layers.0","model.layers.0.mlp.gate_proj"])") == Approx(0.25));
  CHECK(share(R"("ignore":["re:.*down_proj"])") == Approx(mlp / 3 / layer).margin(0.005));
  CHECK(share(R"("ignore":["re:.*self_attn\\.(q|k|v)_proj$"])") ==
        Approx((64 * 64 + 2 * 64 * 32) / layer).margin(0.005));
  CHECK(share(R"("ignore":["re:.*mlp\\.(gate|up)_proj"])") == Approx(mlp / 3 * 2 / layer).margin(0.005));
  CHECK(share(R"("ignore":["transformer.h.0.attn"])") == Approx(attention / 4 / layer).margin(0.005));
  // No matrix of attention or MLP.
  CHECK(share(R"("ignore":["model.layers.0.self_attn.q_norm","re:.*post_feedforward_layernorm","re:.*linear_attn.*",)"
              R"("model.layers.1.linear_attn.in_proj_a","re:.*mlp.gate$","re:.*layers.[0-1].mlp"])") == 0);
  CHECK(share(R"("ignore":["model.layers.9.mlp","model.layers.2.input_layernorm"])") == 0);
  // Meta's 405B in FP8: attention of all 126 layers, and the MLPs of the first and the last.
  const double meta_attention = 2.0 * 16384 * 16384 + 2.0 * 16384 * 1024, meta_mlp = 3.0 * 16384 * 53248;
  std::string list = R"("modules_to_not_convert":["lm_head")";
  for (int i = 0; i < 126; ++i) {
    for (const char* matrix : {"q", "k", "v", "o"}) {
      list += fmt::format(R"(,"model.layers.{}.self_attn.{}_proj")", i, matrix);
    }
  }
  for (const char* module : {"0.mlp.gate_proj", "0.mlp.up_proj", "0.mlp.down_proj", "125.mlp"}) {
    list += fmt::format(R"(,"model.layers.{}")", module);
  }
  const std::string meta = R"({"model_type":"llama","vocab_size":128256,"hidden_size":16384,"intermediate_size":53248,)"
                           R"("num_hidden_layers":126,"num_attention_heads":128,"num_key_value_heads":8,)"
                           R"("max_position_embeddings":131072,"rms_norm_eps":1e-5,"tie_word_embeddings":false,)"
                           R"("quantization_config":{"quant_method":"fbgemm_fp8",)" + list + "]}}";
  CHECK(parsed(meta).options.stored.plain_share ==
        Approx((126 * meta_attention + 2 * meta_mlp) / (126 * (meta_attention + meta_mlp))).margin(1e-4));
}

TEST_CASE("what none of llm-compressor's targets names is left, unless they name a class of modules") {
  // Of a layer as above.
  const auto share = [](const std::string& targets, const std::string& more = "") {
    const std::string shape = R"("hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,)"
                              R"("intermediate_size":256,"num_hidden_layers":4,)";
    return parsed(R"({"model_type":"llama","vocab_size":128,"max_position_embeddings":512,"rms_norm_eps":1e-6,)"
                  R"("tie_word_embeddings":false,)" + shape +
                  R"("quantization_config":{"quant_method":"compressed-tensors","config_groups":{"a":{"targets":[)" +
                  targets + R"(],"weights":{"type":"float","num_bits":8}}})" + more + "}}").options.stored.plain_share;
  };
  const double attention = 2 * 64 * 64 + 2 * 64 * 32, mlp = 3 * 64 * 256, layer = attention + mlp;
  CHECK(share(R"("Linear")") == 0);
  CHECK(share(R"("Linear","re:.*mlp.*")") == 0);
  CHECK(share(R"("re:.*something_else$")") == 0);
  CHECK(share(R"("re:.*self_attn.*","re:.*(fc1|fc2)$")") == 0);
  CHECK(share(R"("re:.*[qkvo]_proj","re:.*\\.(?:gate|up|down)_proj$","lm_head")") == 0);
  CHECK(share(R"("re:.*[kv]_proj","re:.*mlp.*")") == Approx(2.0 * 64 * 64 / layer).margin(0.005));
  CHECK(share(R"("re:.*mlp.*")") == Approx(attention / layer).margin(0.005));
  CHECK(share(R"("re:.*(gate|up)_proj$")") == Approx((attention + mlp / 3) / layer).margin(0.005));
  CHECK(share(R"("re:.*mlp.*")", R"(,"ignore":["model.layers.3"])") ==
        Approx((attention + mlp / 4) / layer).margin(0.005));
  // Of a mixture the experts alone are packed where they alone are named.
  const auto bits = [](const std::string& targets) {
    return parsed(decoder("mixtral", R"("num_local_experts":8,"num_key_value_heads":2,"quantization_config":{)"
                                     R"("quant_method":"compressed-tensors","config_groups":{"a":{"targets":[)" +
                                         targets + R"(],"weights":{"type":"int","num_bits":8}}}})"))
        .options.stored.layer_bits;
  };
  CHECK(bits(R"("re:.*experts.*")") == 16);
  CHECK(bits(R"("re:.*experts.*","re:.*self_attn.*")") == 8);
  CHECK(bits(R"("Linear")") == 8);
}

TEST_CASE("a cache in fp8 that a file states is known by either word for it, others are not") {
  const auto cache = [](const std::string& more) {
    return parsed(fp8_llama(R"("quant_method":"modelopt","quant_algo":"FP8")" + more)).options.stored.cache;
  };
  CHECK(cache("").empty());
  CHECK(cache(R"(,"kv_cache_quant_algo":"FP8")") == "fp8");
  CHECK(cache(R"(,"kv_cache_quant_algo":"NVFP4")").empty());
  CHECK(cache(R"(,"kv_cache_quant_algo":null)").empty());
  CHECK(cache(R"(,"kv_cache_scheme":{"num_bits":8,"type":"float","dynamic":false})") == "fp8");
  CHECK(cache(R"(,"kv_cache_scheme":{"num_bits":8,"type":"int"})").empty());
  CHECK(cache(R"(,"kv_cache_scheme":null)").empty());
}

TEST_CASE("what Model Optimizer wrote beside a config.json is read with it, unless that says how itself") {
  TemporaryFolder folder;
  const std::filesystem::path config = folder.path() / "config.json", beside = folder.path() / "hf_quant_config.json";
  const auto stored = [&](const std::string& text) {
    write_text_file(config, text);
    return read_config_json(config).options.stored;
  };
  write_text_file(beside,
                  R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4","group_size":16,)"
                  R"("kv_cache_quant_algo":"FP8","exclude_modules":["*self_attn*","lm_head"]}})");
  // Python's word for a number that is none does not hide the other file.
  const StoredFormat nvfp4 = stored(decoder("llama", R"("time_step_limit":[0.0,Infinity])"));
  CHECK(nvfp4.name == "nvfp4");
  CHECK(nvfp4.cache == "fp8");
  CHECK(nvfp4.plain_share > 0);
  CHECK(stored(fp8_llama(R"("quant_method":"fp8")")).name == "fp8");
  CHECK(stored(fp8_llama(R"("quant_method":"fp8")")).cache.empty());
  for (const char* wrong : {"[]", "{", R"({"quantization":"FP8"})"}) {
    write_text_file(beside, wrong);
    CHECK_THROWS_WITH(stored(decoder("llama")), Catch::Contains("hf_quant_config.json: expected a JSON object"));
    CHECK(stored(fp8_llama(R"("quant_method":"fp8")")).name == "fp8");
  }
  write_text_file(beside, R"({"quantization":{"quant_algo":"MIXED_PRECISION"}})");
  CHECK(stored(decoder("llama")).name.empty());
  CHECK(read_config_json(config).options.stored_unknown.find("quant_algo is \"MIXED_PRECISION\"") != std::string::npos);
  // Its weights are as they were, and only the cache is quantised.
  write_text_file(beside, R"({"quantization":{"quant_algo":null,"kv_cache_quant_algo":"FP8"}})");
  CHECK(stored(decoder("llama")).name.empty());
  CHECK(stored(decoder("llama")).cache == "fp8");
  CHECK(read_config_json(config).options.stored_unknown.empty());
  std::filesystem::remove(beside);
  CHECK(stored(decoder("llama")).name.empty());
}

TEST_CASE("quantised checkpoints of which nothing is known say so, others are refused") {
  for (const char* other : {R"("quant_method":"aqlm","bits":4)", R"("bits":4)", R"("quant_method":"mxfp4")"}) {
    INFO(other);
    const ModelOptions options = parsed(fp8_llama(other)).options;
    CHECK(options.stored_unknown.find("of quant_method are known auto-round, awq, bitsandbytes") != std::string::npos);
    CHECK(options.cannot_run == options.stored_unknown);
    CHECK(options.stored.name.empty());
  }
  CHECK(parsed(fp8_llama(R"("quant_method":"modelopt","quant_algo":"MIXED")")).options.stored_unknown.find(
            "quant_algo is \"MIXED\"") != std::string::npos);
  check_refused(fp8_llama(R"("quant_method":"modelopt")"), "its quant_algo is missing");
  CHECK_FALSE(parsed(fp8_llama(R"("quant_method":"modelopt","quantization":{"quant_algo":"W8"})"))
                  .options.stored_unknown.empty());
  check_refused(fp8_llama(R"("quant_method":"awq","bits":0)"), "bits is 0");
  check_refused(fp8_llama(R"("quant_method":"exl2")"), "bits is missing");
  check_refused(compressed(R"("type":"float","num_bits":6)"), "expected 4 or 8");
  check_refused(compressed(R"("type":"float","num_bits":8,"strategy":"group")"), "strategy is \"group\"");
  check_refused(fp8_llama(R"("quant_method":"compressed-tensors")"), "config_groups are missing");
  check_refused(fp8_llama(R"("quant_method":"fp8","fmt":"e5m2")"), "fmt is \"e5m2\"");
  for (const char* block : {"[128]", "[128,0.5]", "[128,-1]", "[128,1e12]"}) {
    check_refused(fp8_llama(R"("quant_method":"fp8","weight_block_size":)" + std::string(block)), "weight_block_size");
  }
  check_refused(fp8_llama(R"("quant_method":"compressed-tensors","config_groups":{)"
                          R"("a":{"weights":{"type":"float","num_bits":8}},"b":{"weights":{"type":"float",)"
                          R"("num_bits":8,"strategy":"block","block_structure":[8,8]}}})"),
                "in blocks of one size");
}
