// Experts of a layer that lie together in two tensors, as in the checkpoints of Qwen3.5 and Qwen3-VL.
#include <cstring>

#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/model_folder.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

StoredContent turned(const StoredContent& matrix) {
  const std::size_t rows = matrix.shape[0], cols = matrix.shape[1];
  StoredContent out{matrix.name, matrix.type, {cols, rows}, std::vector<std::byte>(matrix.data.size())};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      std::memcpy(&out.data[2 * (c * rows + r)], &matrix.data[2 * (r * cols + c)], 2);
    }
  }
  return out;
}

// One below the other.
StoredContent stacked(StoredContent above, const StoredContent& below) {
  above.shape[0] += below.shape[0];
  above.data.insert(above.data.end(), below.data.begin(), below.data.end());
  return above;
}

// The golden with the experts of each layer in two tensors.
Tensors with_joint_experts(const std::string& golden, std::size_t experts, bool by_columns) {
  Tensors tensors = golden_tensors(golden);
  for (const std::string layer : {"0", "1"}) {
    const std::string prefix = "model.layers." + layer + ".mlp.experts.";
    StoredContent gate_up{prefix + "gate_up_proj", DType::kBF16, {}, {}}, down = gate_up;
    down.name = prefix + "down_proj";
    for (std::size_t e = 0; e < experts; ++e) {
      const auto part = [&](const char* name) { return named(tensors, prefix + std::to_string(e) + name); };
      const StoredContent both = stacked(part(".gate_proj.weight"), part(".up_proj.weight"));
      for (const auto& [joint, own] : {std::pair(&gate_up, both), std::pair(&down, part(".down_proj.weight"))}) {
        const StoredContent matrix = by_columns ? turned(own) : own;
        joint->shape = {experts, matrix.shape[0], matrix.shape[1]};
        joint->data.insert(joint->data.end(), matrix.data.begin(), matrix.data.end());
      }
    }
    std::erase_if(tensors, [&](const StoredContent& t) { return t.name.starts_with(prefix); });
    tensors.push_back(gate_up);
    tensors.push_back(down);
  }
  return tensors;
}

std::filesystem::path folder_with(const TemporaryFolder& folder, const std::string& golden, const Tensors& tensors) {
  std::filesystem::copy_file(kGoldenModels / golden / "config.json", folder.path() / "config.json");
  write_tensors(folder.path() / "model.safetensors", tensors);
  return folder.path();
}

}  // namespace

TEST_CASE("experts that lie together in two tensors are those of experts apart, by rows and by columns") {
  const Model apart = load_model(kGoldenModels / "qwen3-moe", DType::kF32);
  const std::size_t experts = apart.config.shape.experts;
  const std::vector<std::int64_t> ids = {3, 17, 5, 40, 9};
  const std::vector<float> expected = prompt_logits(apart, ids);
  for (const bool by_columns : {false, true}) {
    CAPTURE(by_columns);
    const TemporaryFolder folder;
    const Model joint = load_model(
        folder_with(folder, "qwen3-moe", with_joint_experts("qwen3-moe", experts, by_columns)), DType::kF32);
    CHECK(prompt_logits(joint, ids) == expected);
  }
}

TEST_CASE("experts together whose tensor has another size are refused, with the size that is asked for") {
  Tensors tensors = with_joint_experts("qwen3-moe", 4, false);
  StoredContent& down = named(tensors, "model.layers.1.mlp.experts.down_proj");
  down.shape[0] -= 1;
  down.data.resize(down.data.size() / 4 * 3);
  const TemporaryFolder folder;
  CHECK_THAT(refusal(folder_with(folder, "qwen3-moe", tensors)),
             Catch::Contains("tensor model.layers.1.mlp.experts.down_proj has shape [3, "));
}
