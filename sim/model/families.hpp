// The parsers of config.json, one a family; config_json.cpp holds the table.
#pragma once

#include <string_view>

#include "sim/model/config_json.hpp"

namespace kvroof {

// LLaMA 1 to 3 and models that keep its layout.
Result<ModelConfig> parse_llama_config(std::string_view config_json);

}  // namespace kvroof
