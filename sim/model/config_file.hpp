// config.json of a Hugging Face folder, with what lies beside it.
#pragma once

#include <filesystem>

#include "sim/model/config_json.hpp"

namespace kvroof {

// Reads and parses it. Where it does not say how weights are quantised, NVIDIA's hf_quant_config.json beside it does
// (Model Optimizer's checkpoints of before it wrote quantization_config as well). Throws Error (usage), naming the
// file, where one of them is unreadable, above 16 MiB or refused.
ModelConfig read_config_json(const std::filesystem::path& config_json);

}  // namespace kvroof
