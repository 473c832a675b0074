// One operator of a model's layer, as profiles of a layer name it: "Llama-3.1-8B qkv_proj", "lm_head (Qwen3-32B)".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/published_metric.hpp"

namespace kvroof {

struct NamedOperator {
  std::optional<LayerOperator> op;      // nothing: the whole layer
  std::optional<std::uint32_t> tokens;  // "tokens=8", where the name has it
  std::vector<std::string> rest;        // what else could name the model: all other words, then each by itself
};
NamedOperator operator_in(std::string_view text);

// The operator of the setting by itself, over the tokens of its batch. Attention reads `input` rows of each sequence.
Result<PublishedKernel> operator_kernel(const PublishedSetting& setting);

}  // namespace kvroof
