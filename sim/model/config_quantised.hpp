// quantization_config of a config.json: how a checkpoint stores weights in fewer bits than they are run in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/model/config_fields.hpp"
#include "sim/model/stored_format.hpp"

namespace kvroof {

struct Quantisation {
  StoredFormat stored;
  Fp8Storage fp8;          // where the engine unpacks it
  std::string cannot_run;  // why it does not, or empty
  std::string unknown;     // why nothing is known of how weights are stored, or empty: quant_method is one of others
  std::vector<std::string> left;   // modules that its file leaves as they were: names and patterns
  std::vector<std::string> taken;  // those that it packs, and nothing but them; empty: all that are not left
};

// The engine unpacks matrices in FP8 as DeepSeek and Qwen ("fp8"), llm-compressor ("compressed-tensors"), Meta
// ("fbgemm_fp8") and NVIDIA ("modelopt") publish them, and `own`, a format that the family's parser knows. The bits are
// known of AWQ, GPTQ, AutoRound, bitsandbytes and ExLlama, and of integers and FP4 of llm-compressor and NVIDIA.
// Of another quant_method nothing is known; what else is not built is refused.
Quantisation read_quantisation(ConfigFields& fields, std::string_view own);

}  // namespace kvroof
