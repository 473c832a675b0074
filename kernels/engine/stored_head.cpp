#include "kernels/engine/stored_head.hpp"

#include <algorithm>

namespace kvroof {
namespace {

constexpr std::uint64_t kElementsCompared = std::uint64_t{1} << 18;  // at a time

std::vector<float> floats_of(const StoredTensor& tensor, std::uint64_t first, std::size_t count) {
  const DType type = tensor.info->type;
  std::vector<std::byte> raw(count * size_of(type));
  tensor.file->read(*tensor.info, first * size_of(type), raw);
  std::vector<float> numbers(count);
  convert_to_float(type, raw.data(), numbers);
  return numbers;
}

}  // namespace

bool stores_another_head(const NamedTensors& tensors, const std::string& head, const std::string& embedding) {
  const StoredTensor* one = tensors.find(head);
  const StoredTensor* other = tensors.find(embedding);
  if (one == nullptr || other == nullptr) return false;
  if (!is_weight_type(one->info->type) || !is_weight_type(other->info->type)) return false;
  if (one->info->shape != other->info->shape) return true;
  const std::uint64_t elements = one->info->elements();
  for (std::uint64_t first = 0; first < elements; first += kElementsCompared) {
    const auto count = static_cast<std::size_t>(std::min(kElementsCompared, elements - first));
    if (floats_of(*one, first, count) != floats_of(*other, first, count)) return true;
  }
  return false;
}

}  // namespace kvroof
