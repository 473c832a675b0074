// The language model within the config.json of a model that also takes pictures, sounds or videos.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvroof {

// Its configuration as that of a language model by itself, or nothing where the file is not of such a model, or says
// nothing that is known of its language model. Of prompts that are texts alone, rotary embedding by time, height and
// width (Qwen2-VL, arXiv:2409.12191) turns as the plain one does, and is said as that. What the whole says of a
// tied head holds for the part, and of types and quantisation where the part says nothing.
std::optional<std::string> text_part_of_config(std::string_view config_json);

}  // namespace kvroof
