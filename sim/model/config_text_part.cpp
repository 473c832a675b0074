#include "sim/model/config_text_part.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace kvroof {
namespace {

using nlohmann::json;

// Models around a language model, sorted; each has it under text_config or llm_config, but for those whose first
// files have its keys beside their own.
constexpr std::array<std::string_view, 31> kWholes = {
    "NemotronH_Nano_VL_V2", "aya_vision", "gemma3", "gemma3n", "gemma4", "gemma4_unified", "glm4v", "glm4v_moe",
    "idefics3", "internvl", "internvl_chat", "kimi_k25", "kimi_vl", "lfm2_vl", "llama4", "llava", "llava_next",
    "llava_next_video", "llava_onevision", "mistral3", "qwen2_5_vl", "qwen2_audio", "qwen2_vl", "qwen3_5",
    "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe", "smolvlm", "step3p7", "video_llava", "voxtral"};
static_assert(std::ranges::is_sorted(kWholes));

struct Part {
  std::string_view named;   // its model_type, or that of a whole with its keys beside its own
  std::string_view family;  // whose arithmetic it has
  // Keys that its code does not read, as that family's would say what it does.
  const char* fixed = "{}";
};
constexpr std::array<Part, 12> kParts = {{{"gemma3n", "gemma3n_text"},
                                         {"gemma4", "gemma4_text"},
                                         {"glm4v_moe_text", "glm4_moe"},
                                         {"glm4v_text", "glm4", R"({"attention_bias": true, "head_dim": null})"},
                                         {"llama4", "llama4_text"},
                                         {"qwen2_5_vl", "qwen2"},
                                         {"qwen2_5_vl_text", "qwen2"},
                                         {"qwen2_vl", "qwen2"},
                                         {"qwen2_vl_text", "qwen2"},
                                         {"qwen3_vl_moe_text", "qwen3_moe", R"({"norm_topk_prob": true})"},
                                         {"qwen3_vl_text", "qwen3"},
                                         {"step3p7", "step3p5"}}};

// Sizes of the classes of transformers, which leaves them out of a part of a file where they are these.
struct ClassSizes {
  std::string_view family;
  const char* sizes;
};
constexpr std::array<ClassSizes, 3> kClassSizes = {
    {{"llama", R"({"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
                   "vocab_size": 32000})"},
     {"mistral", R"({"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                     "num_attention_heads": 32, "vocab_size": 32000})"},
     {"qwen2", R"({"hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
                   "num_key_value_heads": 32, "vocab_size": 151936})"}}};

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// What the class of a whole takes its language model for where the file does not say; empty: it has to say.
std::string default_family(const std::string& whole) {
  const std::string own = whole + "_text";
  for (const char* of_its_name : {"gemma3", "gemma3n", "gemma4", "gemma4_unified", "llama4"}) {
    if (whole == of_its_name) return own;
  }
  if (whole == "step3p7") return "step3p5";
  if (std::ranges::find(kParts, own, &Part::named) != kParts.end()) return own;
  if (whole == "qwen3_5" || whole == "qwen3_5_moe") return own;
  if (whole == "lfm2_vl") return "lfm2";
  if (whole == "mistral3") return "mistral";
  if (whole == "aya_vision") return "cohere2";
  if (whole == "kimi_vl" || whole == "kimi_k25") return "deepseek_v3";
  if (whole == "llava_onevision" || whole == "qwen2_audio" || whole == "internvl") return "qwen2";
  return whole == "internvl_chat" ? "" : "llama";
}

// Its language model's configuration, or null.
json inner_of(const json& whole) {
  for (const char* key : {"text_config", "llm_config"}) {
    if (const auto inner = whole.find(key); inner != whole.end() && inner->is_object()) return *inner;
  }
  return whole.contains("hidden_size") ? whole : json();
}

void forget_sections(json& part) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = part.find(key);
    if (rope == part.end() || !rope->is_object()) continue;
    rope->erase("mrope_section");
    rope->erase("mrope_interleaved");
    for (const char* kind : {"type", "rope_type"}) {
      if (text_of(*rope, kind) == "mrope") (*rope)[kind] = "default";
    }
  }
}

void take_from_whole(const json& whole, json& part) {
  if (!part.contains("dtype") && !part.contains("torch_dtype")) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (whole.contains(key)) part[key] = whole[key];
    }
  }
  if (!part.contains("quantization_config") && whole.contains("quantization_config")) {
    part["quantization_config"] = whole["quantization_config"];
  }
  constexpr const char* kTied = "tie_word_embeddings";
  if (whole.contains(kTied)) {
    part[kTied] = whole[kTied];
  } else if (text_of(whole, "model_type") == "gemma3") {
    part.erase(kTied);  // its class ties
  }
}

}  // namespace

std::optional<std::string> text_part_of_config(std::string_view config_json) {
  const json whole = json::parse(config_json, nullptr, false);
  if (!whole.is_object() || !std::ranges::binary_search(kWholes, text_of(whole, "model_type"))) return {};
  json part = inner_of(whole);
  if (part.is_null()) return {};
  const std::string of_whole = text_of(whole, "model_type");
  std::string family = text_of(part, "model_type");
  if (family.empty() || of_whole == "step3p7") family = default_family(of_whole);  // its class reads no name there
  const auto known = std::ranges::find(kParts, family, &Part::named);
  part["model_type"] = known != kParts.end() ? known->family : std::string_view(family);
  if (known != kParts.end()) part.update(json::parse(known->fixed));
  const auto sizes = std::ranges::find(kClassSizes, text_of(part, "model_type"), &ClassSizes::family);
  if (sizes != kClassSizes.end()) {
    json all = json::parse(sizes->sizes);
    all.update(part);
    part = std::move(all);
  }
  take_from_whole(whole, part);
  forget_sections(part);
  return part.dump();
}

}  // namespace kvroof
