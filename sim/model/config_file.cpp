#include "sim/model/config_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/core/files.hpp"
#include "sim/model/config_fields.hpp"
#include "sim/model/python_json.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMostBytes = 16U << 20;

std::string text_of(const fs::path& path) {
  return read_text_file(path, kMostBytes).or_throw(path.string(), ExitCode::kUsage);
}

// As config.json would say it.
json quantisation_of(const fs::path& beside) {
  const std::string text = text_of(beside);
  const ConfigFields fields(text);
  if (fields.failed() || !fields.has_object("quantization")) {
    throw usage_error(fmt::format("{}: expected a JSON object with an object 'quantization'", beside.string()));
  }
  json quantisation = json::parse(text)["quantization"];
  quantisation["quant_method"] = "modelopt";
  return quantisation;
}

}  // namespace

ModelConfig read_config_json(const fs::path& config_json) {
  const std::string text = with_words_quoted(text_of(config_json));
  const fs::path beside = config_json.parent_path() / "hf_quant_config.json";
  const ConfigFields fields(text);
  const bool says_how =
      fields.failed() || fields.has("quantization_config") || fields.has("text_config.quantization_config");
  std::error_code ignored;
  if (says_how || !fs::exists(beside, ignored)) {
    return parse_config_json(text).or_throw(config_json.string(), ExitCode::kUsage);
  }
  json config = json::parse(text);
  config["quantization_config"] = quantisation_of(beside);
  return parse_config_json(config.dump())
      .or_throw(fmt::format("{} with {}", config_json.string(), beside.filename().string()), ExitCode::kUsage);
}

}  // namespace kvroof
