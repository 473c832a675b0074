// Shapes and weight bytes from GGUF headers.
#include "sim/cost/weight_format.hpp"
#include "sim/model/gguf.hpp"

#include "tests/catch.hpp"
#include "tests/support/gguf_bytes.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

GgufModel model_of(const GgufBytes& file) {
  const std::string head = file.header();
  auto header = parse_gguf_header(std::as_bytes(std::span(head)), file.file_size()).or_throw("header");
  REQUIRE(header);
  return gguf_model(*header).or_throw("model");
}

std::string refusal(const GgufBytes& file) {
  const std::string head = file.header();
  auto header = parse_gguf_header(std::as_bytes(std::span(head)), file.file_size());
  if (!header.ok()) return header.error();
  REQUIRE(header.value());
  const auto model = gguf_model(*header.value());
  return model.ok() ? "" : model.error();
}

constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ8_0 = 8, kQ4_K = 12, kBF16 = 30;

}  // namespace

TEST_CASE("A GGUF file of Llama 3 8B has the published parameters and bytes") {
  const GgufSizes sizes{32, 4096, 32, 8, 14336, 128256, 8192};
  const ModelShape known = find_model_shape("llama-3-8b", std::string(KVROOF_SOURCE_DIR) + "/catalog");
  const std::uint64_t norms = 65 * 4096;
  const GgufModel model = model_of(llama_gguf(sizes, kBF16, 1, 2));
  CHECK(model.parameters == 8030261248);  // Llama 3 model card: 8.03 billion
  CHECK(parameter_count(model.shape) == model.parameters);
  CHECK(model.bytes == 2 * (8030261248 - norms) + 4 * norms);
  CHECK(model.shape.weight_type == DType::kBF16);
  CHECK(kv_bytes_per_token(model.shape, DType::kF16).value == kv_bytes_per_token(known, DType::kF16).value);
  ModelShape same = known;
  same.name = "tiny";
  same.family = "llama";
  CHECK(shape_to_json(model.shape) == shape_to_json(same));
  // Blocks of 32 in 18 and 34 bytes, of 256 in 144.
  for (const auto& [type, block, bytes, name] :
       {std::tuple(kQ4_0, 32, 18, "q4_0"), std::tuple(kQ8_0, 32, 34, "q8_0"), std::tuple(kQ4_K, 256, 144, "q4_K")}) {
    const GgufModel quantised = model_of(llama_gguf(sizes, type, block, bytes));
    CHECK(quantised.quantised);
    CHECK(quantised.shape.weight_type == DType::kF16);
    CHECK(quantised.bytes == (8030261248 - norms) / block * bytes + 4 * norms);
    REQUIRE(quantised.types.size() == 2);
    CHECK(quantised.types[0].name == name);
    CHECK(quantised.types[0].tensors == 32 * 7 + 2);
    CHECK(quantised.types[1].name == "f32");
    CHECK(quantised.types[1].bytes == 4 * norms);
  }
}

TEST_CASE("Bits of each part of a quantised GGUF file give its bytes, and its mixture has the file's own name") {
  const GgufSizes sizes{2, 256, 4, 2, 512, 1000, 128};
  GgufBytes file = llama_gguf(sizes, kQ4_K, 256, 144);
  const GgufModel unnamed = model_of(file);
  CHECK(unnamed.stored.name == "q4_K");  // the type of most bytes
  CHECK((unnamed.stored.head_bits == 4.5 && unnamed.stored.embedding_bits == 4.5));
  file.size("general.file_type", 15);
  const GgufModel model = model_of(file);
  CHECK(model.stored.name == "Q4_K_M");
  CHECK(model.stored.layer_bits > 4.5);  // with norms in f32
  CHECK(weight_bytes(model.shape, *weight_format_of(model.stored)).value == model.bytes);
  CHECK(model_of(llama_gguf(sizes, kF16, 1, 2)).stored == StoredFormat{});
}

TEST_CASE("Options of a GGUF model follow from which tensors and keys there are") {
  const GgufModel plain = model_of(llama_gguf({}, kF16, 1, 2));
  CHECK_FALSE(plain.shape.tied_head);
  CHECK_FALSE(plain.shape.qkv_bias);
  CHECK(plain.shape.head_dim == 16);
  CHECK(plain.shape.norm == NormKind::kRms);
  CHECK(plain.shape.mlp == MlpKind::kGated);
  GgufBytes file;
  file.word("general.architecture", "gpt2").size("gpt2.block_count", 1).size("gpt2.embedding_length", 32);
  file.size("gpt2.context_length", 20).size("gpt2.attention.head_count", 4).size("gpt2.feed_forward_length", 128);
  file.number("gpt2.attention.layer_norm_epsilon", 1e-5F).list("tokenizer.ggml.merges", 8, 1, GgufBytes::text("a b"));
  file.tensor("token_embd.weight", {32, 50}, kF32, 6400).tensor("position_embd.weight", {32, 20}, kF32, 2560);
  for (const std::string part : {"attn_norm", "ffn_norm"}) {
    file.tensor("blk.0." + part + ".weight", {32}, kF32, 128).tensor("blk.0." + part + ".bias", {32}, kF32, 128);
  }
  file.tensor("blk.0.attn_qkv.weight", {32, 96}, kF32, 12288).tensor("blk.0.attn_qkv.bias", {96}, kF32, 384);
  file.tensor("blk.0.attn_output.weight", {32, 32}, kF32, 4096).tensor("blk.0.attn_output.bias", {32}, kF32, 128);
  file.tensor("blk.0.ffn_up.weight", {32, 128}, kF32, 16384).tensor("blk.0.ffn_up.bias", {128}, kF32, 512);
  file.tensor("blk.0.ffn_down.weight", {128, 32}, kF32, 16384).tensor("blk.0.ffn_down.bias", {32}, kF32, 128);
  file.tensor("output_norm.weight", {32}, kF32, 128).tensor("output_norm.bias", {32}, kF32, 128);
  const GgufModel gpt2 = model_of(file);
  CHECK(gpt2.shape.tied_head);
  CHECK(gpt2.shape.qkv_bias);
  CHECK(gpt2.shape.out_bias);
  CHECK(gpt2.shape.mlp_bias);
  CHECK(gpt2.shape.mlp == MlpKind::kPlain);
  CHECK(gpt2.shape.norm == NormKind::kLayer);
  CHECK(gpt2.shape.position == PositionScheme::kLearned);
  CHECK(gpt2.shape.position_rows == 20);
  CHECK(gpt2.shape.kv_heads == 4);
  CHECK(parameter_count(gpt2.shape) == gpt2.parameters);
}

TEST_CASE("A GGUF file of gpt-oss has sinks, biases of router and experts, and windows in its even layers") {
  GgufBytes file;
  file.word("general.architecture", "gpt-oss").size("gpt-oss.block_count", 2).size("gpt-oss.embedding_length", 32);
  file.size("gpt-oss.context_length", 4096).size("gpt-oss.attention.head_count", 4);
  file.size("gpt-oss.attention.head_count_kv", 2).size("gpt-oss.attention.key_length", 16);
  file.size("gpt-oss.attention.value_length", 16).size("gpt-oss.feed_forward_length", 48);
  file.size("gpt-oss.expert_count", 4).size("gpt-oss.expert_used_count", 2);
  file.size("gpt-oss.expert_feed_forward_length", 48).size("gpt-oss.attention.sliding_window", 128);
  file.number("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5F);
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> dims) {
    std::uint64_t elements = 1;
    for (const std::uint64_t d : dims) elements *= d;
    file.tensor(name, dims, kF32, 4 * elements);
  };
  add("token_embd.weight", {32, 50});
  add("output.weight", {32, 50});
  add("output_norm.weight", {32});
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    add(layer + "attn_norm.weight", {32});
    add(layer + "post_attention_norm.weight", {32});
    for (const auto& [part, in, out] : {std::tuple("attn_q", 32, 64), {"attn_k", 32, 32}, {"attn_v", 32, 32},
                                        {"attn_output", 64, 32}, {"ffn_gate_inp", 32, 4}}) {
      add(layer + part + ".weight", {static_cast<std::uint64_t>(in), static_cast<std::uint64_t>(out)});
      add(layer + part + ".bias", {static_cast<std::uint64_t>(out)});
    }
    add(layer + "attn_sinks.weight", {4});
    for (const std::string part : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
      const std::uint64_t in = part == "ffn_down_exps" ? 48 : 32;
      add(layer + part + ".weight", {in, 80 - in, 4});
      add(layer + part + ".bias", {80 - in, 4});
    }
  }
  const GgufModel model = model_of(file);
  CHECK((model.shape.attention_sinks && model.shape.router_logit_bias && model.shape.mlp_bias));
  CHECK(model.shape.layer_windows == std::vector<std::uint32_t>{128, 0});
  CHECK(parameter_count(model.shape) == model.parameters);
}

TEST_CASE("Sizes that one layer has and another has not are refused, equal ones are taken") {
  const auto heads = [](std::int32_t second) {
    GgufBytes file = llama_gguf({}, kF16, 1, 2);
    file.list("llama.attention.key_length", 5, 2, GgufBytes::raw(std::int32_t{16}) + GgufBytes::raw(second));
    return file;
  };
  CHECK(model_of(heads(16)).shape.head_dim == 16);
  CHECK(refusal(heads(8)) == "'llama.attention.key_length' differs between layers, which a shape cannot express");
}

TEST_CASE("A table of rotary factors is no parameter, and a header may be longer than what was read of it") {
  GgufBytes file = llama_gguf({}, kF16, 1, 2);
  const std::uint64_t before = model_of(file).parameters;
  file.tensor("rope_freqs.weight", {8}, kF32, 32);
  CHECK(model_of(file).parameters == before);
  const std::string head = file.header();
  for (std::size_t n = 0; n < head.size(); ++n) {
    const auto part = parse_gguf_header(std::as_bytes(std::span(head).first(n)), file.file_size());
    INFO(n);
    REQUIRE(part.ok());
    CHECK_FALSE(part.value());
  }
}

TEST_CASE("A GGUF file that is no whole language model is refused by name") {
  GgufBytes vocabulary;
  vocabulary.word("general.architecture", "llama");
  CHECK(refusal(vocabulary) == "it holds no tensors: a vocabulary alone is no model");
  GgufBytes nameless;
  nameless.tensor("a", {1}, kF32, 4);
  CHECK(refusal(nameless) == "the metadata key 'general.architecture' is missing");
  GgufBytes part = llama_gguf({}, kF16, 1, 2);
  part.value("split.count", 2, GgufBytes::raw(std::uint16_t{3}));
  CHECK(refusal(part).starts_with("a part of a split model"));
  GgufBytes heads = llama_gguf({2, 64, 3, 2}, kF16, 1, 2);
  CHECK(refusal(heads) == "architecture 'llama': heads is 3, not a multiple of kv_heads 2");
  CHECK(refusal(llama_gguf({2, 64, 0, 2}, kF16, 1, 2)).find("heads is 0") != std::string::npos);
}
