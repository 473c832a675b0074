#include "kernels/engine/weight_families.hpp"

#include <array>

namespace kvroof {
namespace {

constexpr std::array<std::string_view, 1> kModel = {"model."};
// The longest first: names are cut at the first that fits.
constexpr std::array<std::string_view, 4> kGemma3 = {"language_model.model.", "model.language_model.",
                                                     "language_model.", "model."};

constexpr std::array kFamilies = {
    WeightFamily{"cohere", kModel, bind_cohere, skipped_decoder},
    WeightFamily{"deepseek_v2", kModel, bind_deepseek_v2, skipped_decoder},
    WeightFamily{"gemma", kModel, bind_llama, skipped_decoder},
    WeightFamily{"gemma2", kModel, bind_gemma2, skipped_decoder},
    WeightFamily{"gemma3_text", kGemma3, bind_gemma2, skipped_gemma3},
    WeightFamily{"llama", kModel, bind_llama, skipped_decoder},
    WeightFamily{"mistral", kModel, bind_llama, skipped_decoder},
    WeightFamily{"mixtral", kModel, bind_mixtral, skipped_decoder},
    WeightFamily{"olmo2", kModel, bind_olmo2, skipped_decoder},
    WeightFamily{"phi3", kModel, bind_phi3, skipped_decoder},
    WeightFamily{"qwen2", kModel, bind_llama, skipped_decoder},
    WeightFamily{"qwen2_moe", kModel, bind_llama, skipped_decoder},
    WeightFamily{"qwen3", kModel, bind_llama, skipped_decoder},
    WeightFamily{"qwen3_moe", kModel, bind_llama, skipped_decoder},
    WeightFamily{"stablelm", kModel, bind_stablelm, skipped_decoder},
    WeightFamily{"starcoder2", kModel, bind_starcoder2, skipped_decoder},
};

}  // namespace

const WeightFamily& weight_family(std::string_view model_type) {
  for (const WeightFamily& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  throw std::logic_error(fmt::format("broken invariant: no weight names for model_type {}", model_type));
}

}  // namespace kvroof
