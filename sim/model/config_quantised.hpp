// quantization_config of a config.json: how a checkpoint stores weights in fewer bits than they are run in.
#pragma once

#include <string_view>

#include "sim/model/config_fields.hpp"

namespace kvroof {

// Matrices in FP8 as DeepSeek and Qwen ("fp8"), llm-compressor ("compressed-tensors"), Meta ("fbgemm_fp8") and NVIDIA
// ("modelopt") publish them, or `own`, a format that the family's parser knows. Everything else is refused.
Fp8Storage read_quantisation(ConfigFields& fields, std::string_view own);

}  // namespace kvroof
