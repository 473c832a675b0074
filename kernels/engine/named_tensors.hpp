// NamedTensors: a checkpoint's tensors under the names that families bind.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engine/checkpoint.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

// Of what weights, and the scales of packed ones, may be.
inline bool is_weight_type(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }
// For messages.
inline std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// A tensor of the checkpoint under the name that it has without a prefix.
class NamedTensors {
 public:
  NamedTensors(const Checkpoint& checkpoint, std::span<const std::string_view> prefixes)
      : checkpoint_(checkpoint), prefixes_(prefixes) {}

  [[nodiscard]] const StoredTensor* find(const std::string& name) const {
    const auto& tensors = checkpoint_.tensors();
    if (const auto plain = tensors.find(name); plain != tensors.end()) return &plain->second;
    for (const std::string_view prefix : prefixes_) {
      if (const auto it = tensors.find(std::string(prefix) + name); it != tensors.end()) return &it->second;
    }
    return nullptr;
  }
  // As the checkpoint has it, or would have it: beside tensors with a prefix, names have that.
  [[nodiscard]] std::string full_name(const std::string& name) const {
    const auto& tensors = checkpoint_.tensors();
    if (tensors.contains(name) || name.starts_with("lm_head") || name.starts_with("embed_out")) return name;
    for (const std::string_view prefix : prefixes_) {
      const auto next = tensors.lower_bound(std::string(prefix));
      if (next != tensors.end() && next->first.starts_with(prefix)) return std::string(prefix) + name;
    }
    return name;
  }
  [[nodiscard]] std::string_view without_prefix(std::string_view name) const {
    for (const std::string_view prefix : prefixes_) {
      if (name.starts_with(prefix)) return name.substr(prefix.size());
    }
    return name;
  }

 private:
  const Checkpoint& checkpoint_;
  std::span<const std::string_view> prefixes_;
};

}  // namespace kvroof
