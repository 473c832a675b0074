// Model shapes as YAML, and finding them by name, file or folder.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "sim/core/files.hpp"
#include "sim/core/names.hpp"
#include "sim/core/suggest.hpp"
#include "sim/model/config_file.hpp"
#include "sim/model/gguf.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/model/shape_json.hpp"
#include "sim/model/stored_format.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json scalar_to_json(const YAML::Node& node) {
  std::uint64_t number = 0;
  bool truth = false;
  if (node.Tag() != "!" && YAML::convert<std::uint64_t>::decode(node, number)) return number;
  if (node.Tag() != "!" && YAML::convert<bool>::decode(node, truth)) return truth;
  return node.Scalar();
}

// `source`, a list of texts, is for people, and `stored` for stored_format_of(); all other keys are those of the JSON
// form.
Result<ModelShape> shape_from_yaml(const std::string& text) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return failure("expected a map with the sizes of a model");
    if (!root["source"]) return failure("key 'source' is missing: every shape says where its sizes come from");
    json fields = json::object();
    for (const auto& entry : root) {
      const auto key = entry.first.as<std::string>();
      if (key == "source" || key == "stored") continue;
      if (fields.contains(key)) return failure("line {}: key '{}' is there twice", entry.first.Mark().line + 1, key);
      if (entry.second.IsSequence()) {
        for (const auto& item : entry.second) fields[key].push_back(scalar_to_json(item));
        continue;
      }
      if (!entry.second.IsScalar())
        return failure("line {}: '{}' must be one value or a list", entry.second.Mark().line + 1, key);
      fields[key] = scalar_to_json(entry.second);
    }
    return shape_from_json(fields);
  } catch (const YAML::Exception& e) {
    return failure("not a valid YAML file: line {}: {}", e.mark.line + 1, e.msg);
  }
}

std::string description_text(const fs::path& path) {
  constexpr std::uint64_t kMostBytes = 16U << 20;
  return read_text_file(path, kMostBytes).or_throw(path.string(), ExitCode::kUsage);
}

// What the shape of a file was made of, and what it has no word for.
std::string undescribed_text(const GgufModel& model) {
  const std::string text = fmt::format("sizes were read from {}", join(model.keys));
  return model.undescribed.empty() ? text : fmt::format("{}; none of them describes the tensors {}", text,
                                                         join(model.undescribed));
}

// Only where the shape says all about the weights: bytes of other types and times are computed from it.
ModelShape shape_of_gguf(const fs::path& path) {
  const GgufModel model = load_gguf(path);
  if (model.parameters != parameter_count(model.shape)) {
    throw usage_error(fmt::format("{}: its tensors hold {} parameters, but its metadata describe {}", path.string(),
                                  model.parameters, parameter_count(model.shape)))
        .note(undescribed_text(model))
        .note("the Hugging Face folder of the model says more about it");
  }
  return model.shape;
}

ModelShape shape_of_file(const fs::path& path) {
  if (path.extension() == ".gguf") return shape_of_gguf(path);
  if (path.extension() != ".json") {
    return shape_from_yaml(description_text(path)).or_throw(path.string(), ExitCode::kUsage);
  }
  const ModelConfig config = read_config_json(path);
  ModelShape shape = config.shape;
  if (shape.name.empty()) shape.name = fs::absolute(path).parent_path().filename().string();
  if (config.options.text_part) shape.name += " (text part)";  // its weights are not those of the whole
  const std::string problem = shape_problem(shape);
  if (!problem.empty()) throw usage_error(fmt::format("{}: {}", path.string(), problem));
  return shape;
}

ModelShape shape_of_catalog(const std::string& name, const fs::path& catalog) {
  const fs::path file = catalog / "models" / (name + ".yaml");
  ModelShape shape = shape_of_file(file);
  check_catalog_name(shape.name, file);
  return shape;
}

// Whether a text that is no path of anything may be meant as a name: Qwen3-32B or Qwen/Qwen3-32B, not ./Qwen3-32B.
bool is_name(const fs::path& typed) {
  constexpr std::array<std::string_view, 4> kFiles = {".yaml", ".yml", ".json", ".gguf"};
  if (std::ranges::find(kFiles, typed.extension().string()) != kFiles.end()) return false;
  const std::string owner = typed.parent_path().string();
  return !owner.starts_with('.') && !owner.starts_with('~') && owner.find('/') == std::string::npos;
}

}  // namespace

std::string stored_format_of(const std::string& catalog_name, const fs::path& catalog) {
  const fs::path file = catalog / "models" / (catalog_name + ".yaml");
  const YAML::Node root = YAML::Load(description_text(file));  // valid: it was read
  return root["stored"] ? root["stored"].as<std::string>() : std::string();
}

static fs::path description_of(const fs::path& folder_or_file) {
  std::error_code error;
  return fs::is_directory(folder_or_file, error) ? folder_or_file / "config.json" : folder_or_file;
}

StoredFormat stored_format_of(const fs::path& folder_or_file) {
  const fs::path file = description_of(folder_or_file);
  if (file.extension() == ".gguf") return load_gguf(file).stored;
  if (file.extension() != ".json") return {};
  const ModelOptions options = read_config_json(file).options;
  if (!options.stored_unknown.empty()) {
    throw usage_error(fmt::format("{}: {}", file.string(), options.stored_unknown));
  }
  return options.stored;
}

std::string cannot_run_of(const fs::path& folder_or_file) {
  const fs::path file = description_of(folder_or_file);
  if (file.extension() != ".json") return {};
  return read_config_json(file).options.cannot_run;
}

std::vector<std::string> catalog_model_names(const fs::path& catalog) { return yaml_names(catalog / "models"); }

std::optional<fs::path> bundled_model(const std::string& name, const fs::path& catalog) {
  std::error_code error;
  const fs::path folder = catalog.parent_path() / "models" / name;
  const bool plain = !name.empty() && fs::path(name) == fs::path(name).filename();
  return plain && fs::is_regular_file(folder / "config.json", error) ? std::optional(folder) : std::nullopt;
}

ModelShape find_model_shape(const std::string& name_or_path, const fs::path& catalog) {
  const std::vector<std::string> names = catalog_model_names(catalog);
  if (std::find(names.begin(), names.end(), name_or_path) != names.end()) {
    return shape_of_catalog(name_or_path, catalog);
  }
  const fs::path path = name_or_path;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (!fs::is_regular_file(path / "config.json")) {
      throw usage_error(fmt::format("{}: this folder has no config.json", name_or_path));
    }
    return shape_of_file(path / "config.json");
  }
  if (fs::is_regular_file(path, error)) return shape_of_file(path);
  if (const auto bundled = bundled_model(name_or_path, catalog)) return shape_of_file(*bundled / "config.json");
  // Qwen/Qwen3-32B, as the model's page writes it, is qwen3-32b, and meta-llama/Llama-3.1-8B-Instruct is llama-3.1-8b.
  const std::string own = path.filename().string();
  if (!is_name(path)) throw usage_error(fmt::format("{}: no such file or folder", name_or_path));
  auto meant = same_name(own, names);
  if (!meant) meant = name_in_catalog(own, names, other_names(catalog, "models"), model_key);
  if (!meant) {
    const char* no_folder = path.has_parent_path() ? ": there is no such folder, and the catalog has no such name" : "";
    throw usage_error(fmt::format("unknown model '{}'{}{}", name_or_path, no_folder, did_you_mean_any(own, names)))
        .note("`kvroof models` lists all of them; or give a folder, a config.json, a GGUF or a YAML file");
  }
  ModelShape shape = shape_of_catalog(*meant, catalog);
  shape.max_positions = own_max_positions(catalog, own).value_or(shape.max_positions);
  return shape;
}

}  // namespace kvroof
