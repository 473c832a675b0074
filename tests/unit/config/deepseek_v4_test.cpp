// DeepSeek-V4: what published files and those of transformers say of its layers, how much it holds, what is refused.
#include <filesystem>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelConfig parsed(const std::string& text) { return parse_config_json(text).or_throw("config.json"); }

// config.json of deepseek-ai/DeepSeek-V4-Flash and -Pro: what concerns sizes. The last entry is of a layer that drafts.
std::string ratios(std::uint32_t first, std::uint32_t layers) {
  std::string text = fmt::format("[{},{}", first, first);
  for (std::uint32_t i = 2; i < layers; ++i) text += i % 2 == 0 ? ",4" : ",128";
  return text + ",0]";
}
std::string flash(const std::string& more = "") {
  return R"({"model_type":"deepseek_v4","attention_bias":false,"expert_dtype":"fp4","hc_mult":4,"head_dim":512,)"
         R"("hidden_act":"silu","hidden_size":4096,"index_head_dim":128,"index_n_heads":64,"index_topk":512,)"
         R"("max_position_embeddings":1048576,"moe_intermediate_size":2048,"n_routed_experts":256,)"
         R"("n_shared_experts":1,"num_attention_heads":64,"num_experts_per_tok":6,"num_hidden_layers":43,)"
         R"("num_hash_layers":3,"num_key_value_heads":1,"o_groups":8,"o_lora_rank":1024,"q_lora_rank":1024,)"
         R"("qk_rope_head_dim":64,"rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":16,)"
         R"("original_max_position_embeddings":65536,"type":"yarn"},"rope_theta":10000,"sliding_window":128,)"
         R"("swiglu_limit":10.0,"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":129280,)"
         R"("quantization_config":{"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",)"
         R"("scale_fmt":"ue8m0","weight_block_size":[128,128]},"compress_ratios":)" +
         ratios(0, 43) + more + "}";
}

// A small model as transformers 5.24 writes it.
std::string tiny(const std::string& more = "") {
  return R"({"model_type":"deepseek_v4","vocab_size":96,"hidden_size":64,"moe_intermediate_size":24,)"
         R"("num_hidden_layers":5,"num_attention_heads":4,"num_key_value_heads":1,"head_dim":16,"q_lora_rank":20,)"
         R"("num_experts_per_tok":2,"n_routed_experts":6,"n_shared_experts":1,"max_position_embeddings":4096,)"
         R"("layer_types":["sliding_attention","compressed_sparse_attention","heavily_compressed_attention",)"
         R"("compressed_sparse_attention","heavily_compressed_attention"],)"
         R"("compress_rates":{"compressed_sparse_attention":4,"heavily_compressed_attention":16},)"
         R"("mlp_layer_types":["hash_moe","hash_moe","moe","moe","moe"],"sliding_window":8,"o_groups":2,)"
         R"("o_lora_rank":12,"index_n_heads":3,"index_head_dim":8,"index_topk":5,"hc_mult":3,)"
         R"("partial_rotary_factor":0.25,"rope_parameters":{"compress":{"partial_rotary_factor":0.25,)"
         R"("rope_theta":160000.0,"rope_type":"default"},"main":{"partial_rotary_factor":0.25,)"
         R"("rope_theta":10000.0,"rope_type":"default"}})" +
         more + "}";
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

void check_refused(const std::string& text, const std::string& why) {
  const auto config = parse_config_json(text);
  INFO(text);
  REQUIRE(!config);
  CHECK_THAT(config.error(), ContainsSubstring(why));
}

std::string problem_with(void (*change)(ModelShape&)) {
  ModelShape s = parsed(tiny()).shape;
  s.name = "tiny";
  change(s);
  return shape_problem(s);
}

}  // namespace

TEST_CASE("parameters of DeepSeek-V4 are those of transformers with the biases of its routers") {
  // Parameters of 5.24 on the meta device; buffers hold a bias of each expert in layers without a table.
  CHECK(parameter_count(parsed(flash()).shape) == std::uint64_t{284'332'230'231} + 40 * 256);
  CHECK(parameter_count(find_model_shape("deepseek-v4-flash", kCatalog)) ==
        std::uint64_t{284'332'230'231} + 40 * 256);
  CHECK(parameter_count(find_model_shape("deepseek-v4-pro", kCatalog)) ==
        std::uint64_t{1'572'997'179'491} + 58 * 384);
  CHECK(parameter_count(parsed(tiny()).shape) == 254'096 + 3 * 6);
}

TEST_CASE("the published file of DeepSeek-V4-Flash is the model of the catalog") {
  const ModelConfig config = parsed(flash());
  ModelShape expected = find_model_shape("deepseek-v4-flash", kCatalog);
  expected.name = config.shape.name;
  CHECK(shape_to_json(config.shape) == shape_to_json(expected));
  CHECK(shape_to_json(shape_from_json(shape_to_json(expected)).or_throw("shape")) == shape_to_json(expected));
  CHECK_THAT(config.options.cannot_run, ContainsSubstring("rows that each stand for several tokens"));
}

TEST_CASE("files that name kinds of layers, or the tokens of a row in each, say the same") {
  const ModelShape named = parsed(tiny()).shape;
  CHECK(named.compressed.rates == std::vector<std::uint32_t>{0, 4, 16, 4, 16});
  CHECK(named.index == TokenIndex{3, 8, 5, 2});
  CHECK(named.hashed_layers == 2);
  std::string numbered = tiny();
  const std::size_t from = numbered.find("\"layer_types\""), to = numbered.find("\"compress_rates\"");
  numbered.replace(from, to - from, "\"compress_ratios\":[0,4,16,4,16,0],");
  CHECK(shape_to_json(parsed(numbered).shape) == shape_to_json(named));
  // Where a file says neither, as transformers has it: two layers of many tokens, then both kinds in turn.
  const ModelShape plain = parsed(R"({"model_type":"deepseek_v4","num_hidden_layers":6})").shape;
  CHECK(plain.compressed.rates == std::vector<std::uint32_t>{128, 128, 128, 4, 128, 4});
  CHECK(plain.hashed_layers == 3);
}

TEST_CASE("a sequence holds its window, a row for each group of tokens, and keys where an index chooses") {
  const ModelShape s = parsed(tiny()).shape;
  constexpr std::uint64_t kRow = 16 * 2, kKey = 8 + 4;
  // The compressed rows are those that transformers' cache holds of 3, 4, 37, 64 and 70 tokens.
  struct Held {
    std::uint64_t tokens, window, chosen, all;
  };
  for (const Held& h : {Held{3, 3, 0, 0}, {4, 4, 1, 0}, {37, 8, 9, 2}, {64, 8, 16, 4}, {70, 8, 17, 4}}) {
    INFO(h.tokens);
    CHECK(kv_bytes(s, DType::kBF16, h.tokens).value ==
          (5 * h.window + 2 * h.chosen + 2 * h.all) * kRow + 2 * h.chosen * kKey);
  }
  // Projection and weight of the last two groups of tokens, of two series each, where rows overlap; else of one.
  const std::uint64_t of_chosen = 8 * 2 * (2 * 16 + 2 * 8), of_all = 16 * 2 * 16;
  CHECK(state_bytes(s, DType::kBF16).value == 4 * (2 * of_chosen + 2 * of_all));
  // A token's part: a 4th of a row and of a key in two layers, a 16th of a row in two.
  CHECK(kv_bytes_per_token(s, DType::kBF16).value == (2 * (kRow + kKey) + 3) / 4 + 2 * kRow / 16);
}

TEST_CASE("experts in 4 bits beside matrices in 8 are told by the file") {
  CHECK(parsed(flash()).options.stored == StoredFormat{"fp8-mxfp4", 0, 0, 0, 0});
  const std::string fp8 = changed(flash(), R"("expert_dtype":"fp4",)", "");
  CHECK(parsed(fp8).options.stored == StoredFormat{"fp8", 0, 0, 0, 0});
  const std::string later = changed(fp8, R"("fmt":"e4m3")", R"("fmt":"e4m3","expert_dtype":"fp4")");
  CHECK(parsed(later).options.stored.name == "fp8-mxfp4");
  const std::string nvidia = changed(flash(), R"("fmt":"e4m3")", R"("fmt":"e4m3","moe_quant_algo":"NVFP4")");
  CHECK(parsed(nvidia).options.stored.expert_bits == 4.5);
  check_refused(changed(flash(), "\"fp4\"", "\"fp6\""), "expert_dtype");
}

TEST_CASE("configurations that no DeepSeek-V4 can have are refused by name") {
  check_refused(flash(R"(,"num_key_value_heads":8)"), "num_key_value_heads");
  check_refused(changed(flash(), ",4,128,", ",8,128,"), "compress_ratios has 8, expected 0, 4 or 128");
  check_refused(changed(flash(), "[0,0,4,", "[0,0,-4,"), "compress_ratios");
  check_refused(changed(flash(), ratios(0, 43), "[0,0,4]"), "compress_ratios has 3 entries");
  check_refused(changed(flash(), ratios(0, 43), "{\"4\":1}"), "compress_ratios");
  check_refused(changed(tiny(), "[\"sliding_attention\"", "[\"full_attention\""), "layer_types has \"full_attention\"");
  check_refused(changed(tiny(), "\"num_hidden_layers\":5", "\"num_hidden_layers\":6"), "layer_types has 5 entries");
  check_refused(changed(tiny(), ":16}", ":4}"), "compress_rates has 4 for both");
  check_refused(changed(tiny(), ":16}", ":0}"), "heavily_compressed_attention");
  check_refused(changed(tiny(), "\"hash_moe\",\"moe\"", "\"moe\",\"hash_moe\""), "mlp_layer_types");
  check_refused(changed(tiny(), "\"o_groups\":2", "\"o_groups\":3"), "o_groups (3)");
  check_refused(tiny(R"(,"index_topk_freq":4)"), "index_topk_freq");
  check_refused(tiny(R"(,"attention_bias":true)"), "attention_bias");
  check_refused(changed(tiny(), "\"n_shared_experts\":1", "\"n_shared_experts\":2"), "n_shared_experts");
  check_refused(tiny(R"(,"hidden_act":"gelu")"), "hidden_act");
  check_refused(changed(tiny(), "\"hc_mult\":3", "\"hc_mult\":1000"), "hc_mult");
  check_refused(changed(tiny(), "\"hc_mult\":3", "\"hc_mult\":1"), "hc_mult");
}

TEST_CASE("sizes of compressed rows that do not go together are named") {
  CHECK(problem_with([](ModelShape&) {}).empty());
  CHECK_THAT(problem_with([](ModelShape& s) { s.compressed.rates.pop_back(); }), ContainsSubstring("4 entries"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.compressed.rates.clear(); }), ContainsSubstring("row_rates is not"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.index.layers = 3; }), ContainsSubstring("index_layers is 3"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.index = {}; }), ContainsSubstring("row_chosen_rate"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.layer_windows.clear(); }), ContainsSubstring("has a window"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.kv_heads = 2; }), ContainsSubstring("one KV head"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.v_head_dim = 8; }), ContainsSubstring("k and v"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.latent_q_rank = 0; }), ContainsSubstring("latent_q_rank is 0"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.compressed.out_groups = 3; }), ContainsSubstring("out_groups"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.hashed_layers = 6; }), ContainsSubstring("hashed_layers is 6"));
  CHECK_THAT(problem_with([](ModelShape& s) { s.residual_streams = 65; }), ContainsSubstring("residual_streams"));
}
