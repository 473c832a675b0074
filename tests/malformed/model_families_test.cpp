// Checkpoints of families with fused, transposed and optional tensors that do not hold what config.json says.
#include <array>

#include "tests/catch.hpp"
#include "tests/support/model_folder.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// A golden, one of its projections that is not square, and one of its vectors.
struct Family {
  const char* model;
  const char* projection;
  const char* bias;
};
constexpr std::array kFamilies = {
    Family{"gpt2", "h.1.attn.c_attn", "h.1.attn.c_attn.bias"},
    Family{"cerebras-gpt", "transformer.h.0.mlp.c_fc", "transformer.h.0.mlp.c_fc.bias"},
    Family{"gptj", "transformer.h.1.mlp.fc_in", "lm_head.bias"},
    Family{"gpt-neox", "gpt_neox.layers.1.attention.query_key_value",
           "gpt_neox.layers.1.attention.query_key_value.bias"},
    Family{"bloom", "h.1.self_attention.query_key_value", "h.1.self_attention.query_key_value.bias"},
    Family{"falcon", "transformer.h.1.self_attention.query_key_value", "transformer.h.1.input_layernorm.bias"},
    Family{"falcon-alibi", "transformer.h.1.self_attention.query_key_value", "transformer.h.1.mlp.dense_4h_to_h.bias"},
    Family{"mpt", "transformer.blocks.1.attn.Wqkv", "transformer.norm_f.weight"},
    Family{"opt", "decoder.layers.1.fc1", "decoder.layers.1.fc1.bias"},
    Family{"opt-350m", "model.decoder.layers.1.fc2", "model.decoder.layers.1.self_attn.k_proj.bias"},
};

std::string weight(const Family& family) { return std::string(family.projection) + ".weight"; }

// The name without the prefix that it may have in a checkpoint.
std::string plain(std::string name) {
  for (const std::string prefix : {"transformer.", "gpt_neox.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

}  // namespace

TEST_CASE("a matrix that is stored the other way round is refused in every family") {
  for (const Family& family : kFamilies) {
    INFO(family.model);
    Tensors tensors = golden_tensors(family.model);
    StoredContent& matrix = named(tensors, weight(family));
    REQUIRE(matrix.shape[0] != matrix.shape[1]);
    std::swap(matrix.shape[0], matrix.shape[1]);
    CHECK_THAT(refusal_of(family.model, tensors), ContainsSubstring(plain(weight(family)) + " has shape ["));
  }
}

TEST_CASE("a fused matrix that lacks a row is refused with both shapes") {
  Tensors tensors = golden_tensors("bloom");
  StoredContent& matrix = named(tensors, "h.1.self_attention.query_key_value.weight");
  matrix.shape[0] -= 1;
  matrix.data.resize(matrix.shape[0] * matrix.shape[1] * 2);
  CHECK_THAT(refusal_of("bloom", tensors),
             ContainsSubstring("h.1.self_attention.query_key_value.weight has shape [287, 96], expected [288, 96]"));
}

TEST_CASE("a bias or norm that is missing is named in every family") {
  for (const Family& family : kFamilies) {
    INFO(family.model);
    Tensors tensors = golden_tensors(family.model);
    std::erase_if(tensors, [&](const auto& t) { return t.name == family.bias; });
    CHECK_THAT(refusal_of(family.model, tensors), ContainsSubstring(std::string("are missing: ") + family.bias));
  }
}

TEST_CASE("a bias too many is named in every family") {
  for (const Family& family : kFamilies) {
    INFO(family.model);
    Tensors tensors = golden_tensors(family.model);
    StoredContent extra = named(tensors, family.bias);
    extra.name = plain(std::string(family.projection)) + ".extra";
    tensors.push_back(extra);
    CHECK_THAT(refusal_of(family.model, tensors), ContainsSubstring("have no place in a") &&
                                                      ContainsSubstring("as config.json describes it: " + extra.name));
  }
}

TEST_CASE("masks and rotary buffers of any type and shape are skipped in every family") {
  for (const Family& family : kFamilies) {
    INFO(family.model);
    Tensors tensors = golden_tensors(family.model);
    std::erase_if(tensors, [](const auto& t) { return t.name.find("masked_bias") != std::string::npos; });
    tensors.push_back({"transformer.h.7.attn.masked_bias", DType::kF16, {}, std::vector<std::byte>(2)});
    tensors.push_back({"layers.7.attention.bias", DType::kU8, {1, 1, 4, 4}, std::vector<std::byte>(16)});
    tensors.push_back({"layers.7.attention.rotary_emb.inv_freq", DType::kF32, {4}, std::vector<std::byte>(16)});
    CHECK(refusal_of(family.model, tensors) == "accepted");
  }
}

TEST_CASE("a tied head may be stored as well, an untied one has to be") {
  Tensors tensors = golden_tensors("gpt-neox");
  std::erase_if(tensors, [](const auto& t) { return t.name == "embed_out.weight"; });
  CHECK_THAT(refusal_of("gpt-neox", tensors), ContainsSubstring("missing: embed_out.weight"));
  tensors = golden_tensors("cerebras-gpt");
  std::erase_if(tensors, [](const auto& t) { return t.name == "lm_head.weight"; });
  CHECK(refusal_of("cerebras-gpt", tensors) == "accepted");
}

TEST_CASE("a position table without OPT's two extra rows is refused") {
  Tensors tensors = golden_tensors("opt");
  StoredContent& table = named(tensors, "decoder.embed_positions.weight");
  table.shape[0] -= 2;
  table.data.resize(table.shape[0] * table.shape[1] * 2);
  CHECK_THAT(refusal_of("opt", tensors),
             ContainsSubstring("embed_positions.weight has shape [96, 128], expected [98, 128]"));
}

TEST_CASE("packed experts without their scales, of another type or of another size are refused by name") {
  const std::string experts = "model.layers.1.mlp.experts.";
  Tensors lacking = golden_tensors("gpt_oss-mxfp4");
  std::erase_if(lacking, [&](const StoredContent& t) { return t.name == experts + "down_proj_scales"; });
  CHECK_THAT(refusal_of("gpt_oss-mxfp4", lacking), ContainsSubstring("are missing: " + experts + "down_proj_scales"));
  Tensors wide = golden_tensors("gpt_oss-mxfp4");
  named(wide, experts + "gate_up_proj_blocks").type = DType::kI8;
  CHECK_THAT(refusal_of("gpt_oss-mxfp4", wide), ContainsSubstring("gate_up_proj_blocks has type I8, expected U8"));
  for (const std::string part : {"gate_up_proj_blocks", "gate_up_proj_scales"}) {
    Tensors less = golden_tensors("gpt_oss-mxfp4");
    StoredContent& tensor = named(less, experts + part);
    tensor.shape[1] -= 2;
    std::size_t bytes = 1;
    for (const std::uint64_t size : tensor.shape) bytes *= size;
    tensor.data.resize(bytes);
    CHECK_THAT(refusal_of("gpt_oss-mxfp4", less), ContainsSubstring(part + " has shape [8, 190, 2"));
  }
}

TEST_CASE("a sink that is no finite number is refused by layer and head") {
  Tensors tensors = golden_tensors("gpt_oss");
  StoredContent& sinks = named(tensors, "model.layers.2.self_attn.sinks");
  sinks.data[7] = std::byte{0xff};  // of bf16 the upper half of element 3
  sinks.data[6] = std::byte{0x80};
  CHECK_THAT(refusal_of("gpt_oss", tensors), ContainsSubstring("the attention sink of head 3 in layer 2 is -inf"));
}
