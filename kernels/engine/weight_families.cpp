#include "kernels/engine/weight_families.hpp"

#include <array>

namespace kvroof {
namespace {

constexpr std::array<std::string_view, 1> kModel = {"model."};

constexpr std::array kFamilies = {
    WeightFamily{"llama", kModel, bind_llama, skipped_llama},
};

}  // namespace

const WeightFamily& weight_family(std::string_view model_type) {
  for (const WeightFamily& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  throw std::logic_error(fmt::format("broken invariant: no weight names for model_type {}", model_type));
}

}  // namespace kvroof
