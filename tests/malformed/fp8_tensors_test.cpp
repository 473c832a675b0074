// Checkpoints in FP8 whose scales are not what config.json and the matrices ask for.
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/model_folder.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

const std::string kMatrix = "model.layers.1.self_attn.o_proj.weight";  // 64 rows of 96

std::string refusal_with(const char* model, const std::string& name, DType type, std::vector<std::uint64_t> shape) {
  Tensors tensors = golden_tensors(model);
  StoredContent& scales = named(tensors, name);
  std::size_t bytes = size_of(type);
  for (const std::uint64_t size : shape) bytes *= size;
  scales = {name, type, std::move(shape), std::vector<std::byte>(bytes)};
  return refusal_of(model, tensors);
}

}  // namespace

TEST_CASE("a matrix in FP8 without scales is refused by their name") {
  Tensors tensors = golden_tensors("deepseek_v3-fp8");
  std::erase_if(tensors, [](const StoredContent& t) { return t.name == kMatrix + "_scale_inv"; });
  CHECK_THAT(refusal_of("deepseek_v3-fp8", tensors), ContainsSubstring("are missing: " + kMatrix + "_scale"));
}

TEST_CASE("scales are of the blocks that config.json tells of, of rows, or of the whole matrix") {
  const std::string scales = kMatrix + "_scale_inv";
  const auto of_shape = [&](std::vector<std::uint64_t> shape) {
    return refusal_with("deepseek_v3-fp8", scales, DType::kF32, std::move(shape));
  };
  for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{3, 3}, {64, 1}, {64}, {1}, {}}) {
    CHECK(of_shape(shape) == "accepted");
  }
  for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{3, 2}, {9}, {1, 96}, {64, 96}, {0}}) {
    CHECK_THAT(of_shape(shape), ContainsSubstring("tensor " + scales + " is F32 [") &&
                                    ContainsSubstring("for a matrix [64, 96]: one number for each block"));
  }
  CHECK_THAT(refusal_with("deepseek_v3-fp8", scales, DType::kU8, {3, 3}), ContainsSubstring(scales + " is U8 [3, 3]"));
  CHECK_THAT(refusal_with("smollm3-fp8-channel", "model.layers.0.mlp.up_proj.weight_scale", DType::kF32, {4, 3}),
             ContainsSubstring("weight_scale is F32 [4, 3]"));
}

TEST_CASE("scales of activations and of a cache may lie beside matrices in FP8, and nowhere else") {
  const auto beside = [](const char* model, const char* name) {
    Tensors tensors = golden_tensors(model);
    tensors.push_back({name, DType::kF32, {}, std::vector<std::byte>(4)});
    return refusal_of(model, tensors);
  };
  for (const char* name : {"model.layers.0.mlp.up_proj.input_scale", "model.layers.0.self_attn.k_scale"}) {
    CHECK(beside("smollm3-fp8-channel", name) == "accepted");
    CHECK_THAT(beside("smollm3", name), ContainsSubstring("have no place"));
  }
  CHECK_THAT(beside("smollm3-fp8-channel", "model.layers.0.mlp.up_proj.weight_zero_point"),
             ContainsSubstring("have no place"));
}

TEST_CASE("a matrix in FP8 whose config.json tells of no quantisation is refused by its type") {
  Tensors tensors = golden_tensors("smollm3");
  StoredContent& matrix = named(tensors, "model.layers.0.mlp.up_proj.weight");
  matrix.type = DType::kF8E4M3;
  matrix.data.resize(matrix.data.size() / 2);
  CHECK_THAT(refusal_of("smollm3", tensors),
             ContainsSubstring("mlp.up_proj.weight has type F8_E4M3, expected F32, F16 or BF16"));
}

TEST_CASE("a model whose embedding is in FP8 as well runs in the type that config.json names") {
  Tensors tensors = golden_tensors("smollm3-fp8-channel");
  StoredContent& embedding = named(tensors, "model.embed_tokens.weight");
  embedding.type = DType::kF8E4M3;
  embedding.data.resize(embedding.data.size() / 2);
  tensors.push_back({"model.embed_tokens.weight_scale", DType::kBF16, {1}, {std::byte{0x80}, std::byte{0x3f}}});
  const TemporaryFolder folder;
  std::filesystem::copy_file(kGoldenModels / "smollm3-fp8-channel/config.json", folder.path() / "config.json");
  write_tensors(folder.path() / "model.safetensors", tensors);
  CHECK(load_model(folder.path(), std::nullopt).type == DType::kBF16);
}
