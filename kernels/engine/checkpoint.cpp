#include "kernels/engine/checkpoint.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/core/files.hpp"
#include "sim/core/text.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

constexpr std::uint64_t kMostIndexBytes = std::uint64_t{64} << 20;
constexpr int kIndexDepth = 3;  // { "weight_map": { name: file } } and its metadata

// Tensor name → file name.
using WeightMap = std::map<std::string, std::string>;

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
         name != "." && name != ".." && name.ends_with(".safetensors");
}

Result<WeightMap> parse_index(std::string_view text) {
  const auto watch = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth <= kIndexDepth; };
  const nlohmann::json root = nlohmann::json::parse(text, watch, false);
  if (has_zero_byte(text) || root.is_discarded() || !root.is_object()) return failure("not a JSON object");
  const auto map = root.find("weight_map");
  if (map == root.end() || !map->is_object() || map->empty()) return failure("weight_map is missing or empty");
  WeightMap files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return failure("weight_map[\"{}\"] is not a file name", tensor);
    const auto name = file.get<std::string>();
    if (!is_plain_file_name(name)) {
      return failure("weight_map[\"{}\"] is \"{}\", expected a plain *.safetensors name inside the folder", tensor,
                     name);
    }
    files.emplace(tensor, name);
  }
  return files;
}

Error no_weights(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
      return usage_error(
                 fmt::format("{}: only pickled weights ({}), which can run code when read; expected model.safetensors",
                             folder.string(), entry.path().filename().string()))
          .note(
              "convert them once, on a machine that trusts them: python3 -c \"from transformers import "
              "AutoModelForCausalLM as A; A.from_pretrained('FOLDER').save_pretrained('NEW', "
              "safe_serialization=True)\"");
    }
  }
  return usage_error(
      fmt::format("{}: neither model.safetensors nor model.safetensors.index.json in this folder", folder.string()));
}

}  // namespace

void Checkpoint::add_file(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(path).or_throw(path.string())));
  const SafetensorsFile& file = *files_.back();
  for (const TensorInfo& tensor : file.header().tensors) {
    const auto [it, added] = tensors_.emplace(tensor.name, StoredTensor{&file, &tensor});
    if (!added) {
      throw Error(
          fmt::format("{}: tensor {} is also in {}", path.string(), tensor.name, it->second.file->path().string()));
    }
  }
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint;
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (fs::exists(single, ignored)) {
    checkpoint.add_file(single);
    return checkpoint;
  }
  if (!fs::exists(index, ignored)) throw no_weights(folder);
  const std::string text = read_text_file(index, kMostIndexBytes).or_throw(index.string());
  const WeightMap map = parse_index(text).or_throw(index.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  for (const std::string& name : names) checkpoint.add_file(folder / name);
  for (const auto& [tensor, file] : map) {
    const auto found = checkpoint.tensors_.find(tensor);
    if (found == checkpoint.tensors_.end() || found->second.file->path().filename() != file) {
      throw Error(fmt::format("{}: weight_map says that {} holds {}, but it does not", index.string(), file, tensor));
    }
  }
  return checkpoint;
}

}  // namespace kvroof
