#include "kernels/engine/joint_experts.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace kvroof {
namespace {

// A matrix of one expert: "layers.3.mlp.experts.12.gate_proj.weight".
struct ExpertName {
  std::string experts;  // "layers.3.mlp.experts"
  std::size_t expert = 0;
  bool is_down = false, is_up = false;
};

std::optional<ExpertName> expert_name(std::string_view tensor) {
  constexpr std::string_view kExperts = ".experts.", kWeight = ".weight";
  const std::size_t at = tensor.find(kExperts);
  if (at == std::string_view::npos || !tensor.ends_with(kWeight)) return std::nullopt;
  ExpertName name{std::string(tensor.substr(0, at + kExperts.size() - 1))};
  std::string_view rest = tensor.substr(at + kExperts.size());
  const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), name.expert);
  if (problem != std::errc() || end == rest.data() + rest.size() || *end != '.') return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()) + 1);
  rest.remove_suffix(kWeight.size());
  name.is_down = rest == "down_proj" || rest == "w2";
  name.is_up = rest == "up_proj" || rest == "w3";
  return name;
}

// [experts, out, in], or turned: [experts, in, out].
class JointTensor {
 public:
  JointTensor(std::string name, std::uint64_t experts, std::uint64_t out, std::uint64_t in, bool turned)
      : binding_{std::move(name), {experts, out, in}, {}}, in_(in), turned_(turned) {
    if (turned_) std::swap(binding_.shape[1], binding_.shape[2]);
    binding_.width = turned_ ? out : in;
    rows_ = binding_.shape[1];
  }

  // The expert's output rows from `first` on are `weight`.
  void add(Weight* weight, std::size_t expert, std::size_t first, std::size_t rows) {
    RowBlock block{.weight = weight, .rows = rows, .cols = in_, .from = expert * rows_ + (turned_ ? 0 : first),
                   .count = turned_ ? in_ : rows};
    block.transposed = turned_;
    block.col = turned_ ? first : 0;
    binding_.blocks.push_back(block);
  }
  TensorBinding take() { return std::move(binding_); }

 private:
  TensorBinding binding_;
  std::size_t in_, rows_ = 0;
  bool turned_;
};

bool is_turned(const NamedTensors& tensors, const std::string& down, const ModelShape& shape) {
  const StoredTensor* stored = tensors.find(down);
  return stored != nullptr && shape.routed_width() != shape.expert_ffn &&
         stored->info->shape == std::vector<std::uint64_t>{shape.experts, shape.expert_ffn, shape.routed_width()};
}

}  // namespace

void bind_joint_experts(const NamedTensors& tensors, const ModelShape& shape, std::vector<TensorBinding>& bindings) {
  if (shape.experts == 0 || shape.mlp != MlpKind::kGated || shape.mlp_bias) return;
  std::vector<TensorBinding> joint;
  std::optional<JointTensor> gate_up, down;
  std::string current;
  const auto finish = [&] {
    if (gate_up) joint.push_back(gate_up->take());
    if (down) joint.push_back(down->take());
    gate_up.reset();
    down.reset();
  };
  std::erase_if(bindings, [&](const TensorBinding& binding) {
    const std::optional<ExpertName> name = expert_name(binding.name);
    if (!name || tensors.find(binding.name) != nullptr || tensors.find(name->experts + ".gate_up_proj") == nullptr) {
      return false;
    }
    if (name->experts != std::exchange(current, name->experts)) {
      finish();
      const std::uint64_t width = shape.routed_width(), ffn = shape.expert_ffn;
      const bool turned = is_turned(tensors, current + ".down_proj", shape);
      gate_up.emplace(current + ".gate_up_proj", shape.experts, 2 * ffn, width, turned);
      down.emplace(current + ".down_proj", shape.experts, width, ffn, turned);
    }
    Weight* const weight = binding.blocks.front().weight;
    if (name->is_down) {
      down->add(weight, name->expert, 0, shape.routed_width());
    } else {
      gate_up->add(weight, name->expert, name->is_up ? shape.expert_ffn : 0, shape.expert_ffn);
    }
    return true;
  });
  finish();
  std::ranges::move(joint, std::back_inserter(bindings));
}

}  // namespace kvroof
