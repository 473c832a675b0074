#include "kernels/engine/fp8_tensors.hpp"

#include <algorithm>
#include <array>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr std::array<std::string_view, 2> kScales = {"_scale_inv", "_scale"};
constexpr std::array<std::string_view, 6> kOfActivations = {".input_scale", ".output_scale", ".q_scale",
                                                            ".k_scale",     ".v_scale",      ".kv_scale"};

using Shape = std::vector<std::uint64_t>;

std::uint64_t parts(std::uint64_t size, std::uint64_t of) { return (size + of - 1) / of; }

struct Block {
  std::size_t rows, cols;
};

// What shares a scale, or nothing where no shape of scales says so.
std::optional<Block> block_of(const Shape& matrix, const Shape& scales, const Fp8Storage& storage) {
  const std::size_t rows = matrix[0], cols = matrix[1];
  if (storage.block_rows > 0 && scales == Shape{parts(rows, storage.block_rows), parts(cols, storage.block_cols)}) {
    return Block{storage.block_rows, storage.block_cols};
  }
  if (scales.empty() || scales == Shape{1}) return Block{rows, cols};
  if (scales == Shape{rows} || scales == Shape{rows, 1}) return Block{1, cols};
  return std::nullopt;
}

Error wrong_scales(const NamedTensors& tensors, const TensorBinding& binding) {
  const StoredTensor& scales = *tensors.find(binding.scales);
  return Error(fmt::format(
      "{}: tensor {} is {} {}, expected F32, F16 or BF16 for a matrix {}: one number for each block that "
      "quantization_config tells of, for each row, or for all of it",
      scales.file->path().string(), tensors.full_name(binding.scales), safetensors_name_of(scales.info->type),
      shape_text(scales.info->shape), shape_text(binding.shape)));
}

}  // namespace

void bind_fp8_scales(const NamedTensors& tensors, const Fp8Storage& storage, std::vector<TensorBinding>& bindings) {
  if (!storage.used) return;
  for (TensorBinding& binding : bindings) {
    const StoredTensor* matrix = tensors.find(binding.name);
    if (matrix == nullptr || matrix->info->type != DType::kF8E4M3 || binding.shape.size() != 2) continue;
    binding.packed = DType::kF8E4M3;
    for (const std::string_view ending : kScales) {
      binding.scales = binding.name + std::string(ending);
      if (tensors.find(binding.scales) != nullptr) break;
    }
    const StoredTensor* scales = tensors.find(binding.scales);
    if (scales == nullptr) continue;
    const auto block = block_of(binding.shape, scales->info->shape, storage);
    if (!block || !is_weight_type(scales->info->type)) throw wrong_scales(tensors, binding);
    binding.scale_rows = block->rows;
    binding.scale_cols = block->cols;
  }
}

bool is_activation_scale(std::string_view tensor) {
  return std::ranges::any_of(kOfActivations, [&](std::string_view ending) { return tensor.ends_with(ending); });
}

}  // namespace kvroof
