#include "kernels/engine/model.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/engine/checkpoint.hpp"
#include "kernels/engine/elements.hpp"
#include "kernels/engine/fp8_tensors.hpp"
#include "kernels/engine/joint_experts.hpp"
#include "kernels/engine/named_tensors.hpp"
#include "kernels/engine/stored_head.hpp"
#include "kernels/engine/weight_families.hpp"
#include "sim/core/files.hpp"
#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"
#include "sim/model/config_file.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

constexpr std::uint64_t kMostConfigBytes = std::uint64_t{16} << 20;
constexpr std::size_t kNamesShown = 3;

std::string first_names(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamesShown);
  const std::string text = join(std::span(names).first(shown));
  return names.size() == shown ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

// The end-of-text ids that generation stops at, where the folder says so beside the configuration.
void read_generation_config(const fs::path& folder, ModelOptions& options) {
  const fs::path path = folder / "generation_config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const std::string text = read_text_file(path, kMostConfigBytes).or_throw(path.string());
  const nlohmann::json root = nlohmann::json::parse(
      text, [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth <= 2; }, false);
  if (has_zero_byte(text) || root.is_discarded() || !root.is_object()) {
    throw Error(fmt::format("{}: not a JSON object", path.string()));
  }
  const auto eos = root.find("eos_token_id");
  if (eos == root.end() || eos->is_null()) return;
  const nlohmann::json list = eos->is_array() ? *eos : nlohmann::json::array({*eos});
  std::vector<std::int64_t> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_unsigned())
      throw Error(fmt::format("{}: eos_token_id is no token id or list of them", path.string()));
    ids.push_back(id.get<std::int64_t>());
  }
  options.eos_ids = std::move(ids);
}

// A stored head that is another matrix than the embedding counts, whatever the configuration says.
void untie_stored_head(Model& model, const NamedTensors& tensors, std::vector<TensorBinding>& bindings) {
  ModelShape& shape = model.config.shape;
  const std::string head(weight_family(shape.family).head);
  if (!shape.tied_head || !stores_another_head(tensors, head, bindings.front().name)) return;
  shape.tied_head = false;
  bindings.push_back(bind_head(shape, model.weights));
  model.notes.push_back(
      fmt::format("the configuration ties the head to the embedding, but the checkpoint holds another {}, which counts",
                  tensors.full_name(head)));
}

void check_names(const Model& model, const Checkpoint& checkpoint, const NamedTensors& tensors,
                 std::span<const TensorBinding> bindings) {
  std::vector<std::string> missing;
  std::vector<std::string> extra;
  std::vector<std::string_view> expected;
  for (const TensorBinding& binding : bindings) {
    expected.emplace_back(binding.name);
    if (!binding.scales.empty()) expected.emplace_back(binding.scales);
    for (const std::string& name : {binding.name, binding.scales}) {
      if (!name.empty() && tensors.find(name) == nullptr) missing.push_back(tensors.full_name(name));
    }
  }
  std::sort(expected.begin(), expected.end());
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::string_view plain = tensors.without_prefix(name);
    const bool known = std::binary_search(expected.begin(), expected.end(), plain);
    const bool skipped = is_skipped(model.config, plain) ||
                         (model.config.options.fp8.used && is_activation_scale(plain));
    if (!known && !skipped) extra.push_back(name);
  }
  if (!missing.empty()) {
    throw Error(fmt::format("{}: {} of the {} tensors that config.json asks for are missing: {}", model.path.string(),
                            missing.size(), bindings.size(), first_names(missing)));
  }
  if (!extra.empty()) {
    throw Error(fmt::format("{}: {} tensors have no place in a {} model as config.json describes it: {}",
                            model.path.string(), extra.size(), model.config.shape.family, first_names(extra)));
  }
}

void check_tensor(const NamedTensors& tensors, const std::string& plain_name, const std::vector<std::uint64_t>& shape,
                  std::optional<DType> packed) {
  const StoredTensor& stored = *tensors.find(plain_name);
  const std::string where = stored.file->path().string();
  const std::string name = tensors.full_name(plain_name);
  if (packed ? stored.info->type != *packed : !is_weight_type(stored.info->type)) {
    throw Error(fmt::format("{}: tensor {} has type {}, expected {}", where, name,
                            safetensors_name_of(stored.info->type),
                            packed ? safetensors_name_of(*packed) : "F32, F16 or BF16"));
  }
  if (stored.info->shape != shape) {
    throw Error(fmt::format("{}: tensor {} has shape {}, expected {} from config.json", where, name,
                            shape_text(stored.info->shape), shape_text(shape)));
  }
}

void check_tensors(const NamedTensors& tensors, std::span<const TensorBinding> bindings) {
  for (const TensorBinding& binding : bindings) {
    const bool packed = !binding.scales.empty();
    check_tensor(tensors, binding.name, binding.shape, packed ? std::optional(binding.packed) : std::nullopt);
    if (packed && binding.packed == DType::kU8) {
      check_tensor(tensors, binding.scales, {binding.shape.begin(), binding.shape.end() - 1}, DType::kU8);
    }
  }
}

void check_sinks(const Model& model) {
  for (std::size_t l = 0; l < model.weights.layers.size(); ++l) {
    const std::span<const float> sinks = model.weights.layers[l].attention_sinks();
    const auto wrong = std::ranges::find_if(sinks, [](float sink) { return !std::isfinite(sink); });
    if (wrong == sinks.end()) continue;
    throw Error(fmt::format("{}: the attention sink of head {} in layer {} is {}, expected a finite number; the "
                            "checkpoint is damaged, fetch it again",
                            model.path.string(), wrong - sinks.begin(), l, *wrong));
  }
}

}  // namespace

ModelConfig load_model_config(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw usage_error(fmt::format("{}: no such model folder", folder.string()))
        .note("--model takes a Hugging Face folder with config.json and model.safetensors");
  }
  const fs::path path = folder / "config.json";
  if (!fs::exists(path, ignored)) throw usage_error(fmt::format("{}: no config.json in this folder", folder.string()));
  ModelConfig config = read_config_json(path);
  if (const std::string why = not_run(config); !why.empty()) {
    throw usage_error(fmt::format("{}: {}", path.string(), why));
  }
  config.shape.name = fs::weakly_canonical(folder).filename().string();
  read_generation_config(folder, config.options);
  return config;
}

Model open_model(const fs::path& folder, std::optional<DType> type) {
  Model model;
  model.config = load_model_config(folder);
  model.name = model.config.shape.name;
  model.path = folder;
  model.checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(folder));
  const NamedTensors tensors(*model.checkpoint, tensor_prefixes(model.config));
  auto bindings = bind_tensors(model.config, model.weights);
  untie_stored_head(model, tensors, bindings);
  bind_joint_experts(tensors, model.config.shape, bindings);
  bind_fp8_scales(tensors, model.config.options.fp8, bindings);
  check_names(model, *model.checkpoint, tensors, bindings);
  check_tensors(tensors, bindings);
  const DType of_embedding = tensors.find(bindings.front().name)->info->type;
  if (is_weight_type(of_embedding)) model.config.shape.weight_type = of_embedding;
  model.type = type.value_or(model.config.shape.weight_type);
  for (const TensorBinding& binding : bindings) {
    const StoredTensor* scales = binding.scales.empty() ? nullptr : tensors.find(binding.scales);
    locate_elements(*tensors.find(binding.name), scales, binding, model.type);
  }
  make_sinks(model);
  check_sinks(model);
  return model;
}

}  // namespace kvroof
