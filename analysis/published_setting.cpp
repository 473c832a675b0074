#include "analysis/published_setting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "analysis/published_conditions.hpp"
#include "analysis/published_names.hpp"
#include "analysis/published_operator.hpp"
#include "sim/core/names.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

// More than any model or run has; a number above it is a mistake of the file.
constexpr unsigned kMostLayers = 1024;
constexpr std::uint32_t kMostBatch = 1U << 20, kMostTokens = 1U << 20;
constexpr std::uint32_t kUnstatedOutput = 128;  // of decode speeds alone, which it hardly changes

// "GPT-20B (48 heads x128, 44 layers)": FasterTransformer's own GPT models, with a vocabulary of 51,200 and 1,024
// positions.
std::optional<ModelShape> sized_gpt(const std::string& name) {
  unsigned heads = 0, width = 0, layers = 0;
  const std::size_t open = name.find('(');
  if (open == std::string::npos) return std::nullopt;
  if (std::sscanf(name.c_str() + open, "(%u heads x%u, %u layers", &heads, &width, &layers) != 3) return std::nullopt;
  if (open == 0 || heads > kMostPublishedHeads || width > kMostPublishedWidth) return std::nullopt;
  if (layers > kMostLayers) return std::nullopt;
  ModelShape s;
  s.name = name.substr(0, open - 1);
  s.family = "gpt2";
  s.layers = layers;
  s.heads = s.kv_heads = heads;
  s.head_dim = s.v_head_dim = width;
  s.hidden = s.embedding_width = heads * width;
  s.ffn = 4 * s.hidden;
  s.vocab = 51200;
  s.max_positions = s.position_rows = 1024;
  s.position = PositionScheme::kLearned;
  s.mlp = MlpKind::kPlain;
  s.norm = NormKind::kLayer;
  s.norm_bias = s.qkv_bias = s.out_bias = s.mlp_bias = s.tied_head = true;
  return shape_problem(s).empty() ? std::optional(s) : std::nullopt;
}

struct Layout {
  std::uint32_t tensor = 1, stages = 1, replicas = 1, experts = 1, groups = 1;
};

// "TP4", "PP2", "TP4PP2", "TP2+PP2", "DP2", "TP4DP2", "layer-split x4", "row-split x4"; what the engine does by itself
// where nothing is said. Experts that lie whole on all devices (EP) are shared by all; where the row says so, or names
// replicas beside them, each device, or each group of TP, attends to sequences of its own.
std::optional<Layout> layout_of(const PublishedRow& row, const EngineProfile& engine, bool has_experts) {
  if (row.gpus == 1) return Layout{};
  std::string text;
  for (const char c : row.parallelism) {
    const auto letter = static_cast<unsigned char>(c);
    text += std::isalnum(letter) != 0 ? static_cast<char>(std::tolower(letter)) : ' ';
  }
  const auto after = [&](std::string_view word) -> std::uint32_t {
    const std::size_t at = text.find(word);
    return at == std::string::npos ? 0 : published_count(std::string_view(text).substr(at + word.size())).value_or(0);
  };
  const auto says = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (says("layer split") || says("layersplit")) return Layout{1, row.gpus, 1};
  if (says("row split") || says("rowsplit")) return Layout{row.gpus, 1, 1};
  const std::uint32_t tensor = after("tp"), stages = after("pp"), replicas = after("dp");
  if (after("ep") == row.gpus && has_experts) {
    const bool apart = by_attention_groups(row.conditions) && replicas == 0;
    const std::uint32_t groups = apart ? row.gpus : std::max(replicas, 1U);
    if (row.gpus % groups != 0) return std::nullopt;
    return Layout{row.gpus / groups, 1, 1, row.gpus, groups};
  }
  if (tensor == 0 && stages == 0 && replicas == 0) {
    // Not stated. Experts, contexts and states by themselves are spread in ways of their own.
    const bool other = after("ep") + after("cp") + after("sp") > 0 || says("fsdp") || says("zero");
    if (other) return std::nullopt;
    return engine.stages_by_default ? Layout{1, row.gpus, 1} : Layout{row.gpus, 1, 1};
  }
  const std::uint32_t experts = has_experts ? std::max(after("ep"), 1U) : 1;
  const Layout layout{std::max(tensor, 1U), std::max(stages, 1U), std::max(replicas, 1U), experts};
  const std::uint64_t devices = std::uint64_t{layout.tensor} * layout.stages * layout.replicas;
  return devices == row.gpus ? std::optional(layout) : std::nullopt;
}

}  // namespace

struct PublishedCatalog::Names {
  fs::path catalog;
  std::map<std::string, std::string> devices, models;  // key of a published name → name of the catalog
  std::vector<EngineProfile> engines;
  std::map<std::string, Device> read_devices;
  std::map<std::string, ModelShape> read_models;

  const Device& device(const std::string& name) {
    const auto at = read_devices.find(name);
    return at != read_devices.end() ? at->second : read_devices.emplace(name, find_device(name, catalog)).first->second;
  }
  const ModelShape& model(const std::string& name) {
    const auto at = read_models.find(name);
    return at != read_models.end() ? at->second
                                   : read_models.emplace(name, find_model_shape(name, catalog)).first->second;
  }
  // The engine whose published name begins the text; nothing when none does.
  const EngineProfile* engine(std::string_view text) const {
    const std::string plain = plain_letters(text);
    const EngineProfile* best = nullptr;
    std::size_t longest = 0;
    for (const EngineProfile& e : engines) {
      for (const std::string& name : e.published_as) {
        const std::string key = plain_letters(name);
        if (key.size() <= longest || !plain.starts_with(key)) continue;
        best = &e;
        longest = key.size();
      }
    }
    return best != nullptr ? best : engine_inside(plain);
  }
  // "LLMServingSim (vLLM profile)": the longest name within the text, if it is long enough to mean anything.
  [[nodiscard]] const EngineProfile* engine_inside(const std::string& plain) const {
    const EngineProfile* best = nullptr;
    std::size_t longest = 3;
    for (const EngineProfile& e : engines) {
      for (const std::string& name : e.published_as) {
        const std::string key = plain_letters(name);
        if (key.size() <= longest || plain.find(key) == std::string::npos) continue;
        best = &e;
        longest = key.size();
      }
    }
    return best;
  }
  const ModelShape* model_called(std::string_view published) {
    const auto at = models.find(model_key(published));
    return at != models.end() ? &model(at->second) : nullptr;
  }
  // A layer of a model or a part of it, and the shape of that.
  std::optional<NamedOperator> part_of(const std::string& published, ModelShape& shape) {
    const NamedOperator part = operator_in(published);
    for (const std::string& name : part.rest) {
      if (!part.op && &name != &part.rest.front()) break;  // a part that has no name here is no whole layer
      const ModelShape* found = model_called(name);
      if (found == nullptr) continue;
      shape = *found;
      return part;
    }
    return std::nullopt;
  }
  // "; did you mean X?", X being the name of the nearest key; or nothing.
  [[nodiscard]] static std::string nearest(const std::string& key, const std::map<std::string, std::string>& names) {
    std::vector<std::string> keys;
    for (const auto& [known, name] : names) keys.push_back(known);
    const auto near = nearest_name(key, keys);
    return near ? fmt::format("; did you mean {}?", names.at(*near)) : std::string();
  }
  [[nodiscard]] std::string no_engine(const std::string& published) const {
    std::map<std::string, std::string> names;
    for (const EngineProfile& e : engines) {
      for (const std::string& name : e.published_as) names[plain_letters(name)] = name;
    }
    return fmt::format("no profile of the engine: {}{}", published, nearest(plain_letters(published), names));
  }
  // Why there is none: unknown, or less than the name of one.
  [[nodiscard]] std::string no_device(const std::string& published) const {
    std::vector<std::string> boards;
    for (const auto& [key, name] : devices) {
      if (key.starts_with(device_key(published)) && published.size() > 1) boards.push_back(name);
    }
    std::sort(boards.begin(), boards.end());
    boards.erase(std::unique(boards.begin(), boards.end()), boards.end());
    if (boards.size() < 2) {
      return fmt::format("no such device in the catalog: {}{}", published, nearest(device_key(published), devices));
    }
    return fmt::format("{} may be {}: name one", published, join(boards));
  }
  // The device of that name, or of the name without its memory where that is the device's: "L4-24GB".
  const Device* device_called(const std::string& published) {
    std::string key = device_key(published);
    for (const std::string& spelt : {key, device_words(published)}) {
      if (const auto at = devices.find(spelt); at != devices.end()) return &device(at->second);
    }
    if (!key.ends_with("gb")) return nullptr;
    key.resize(key.size() - 2);
    std::string digits;
    while (!key.empty() && std::isdigit(static_cast<unsigned char>(key.back())) != 0) {
      digits.insert(digits.begin(), key.back());
      key.pop_back();
      const auto at = devices.find(key);
      if (at == devices.end()) continue;
      const Device& found = device(at->second);
      const auto& memory = found.fact(DeviceField::kMemoryGb);
      if (memory && digits == std::to_string(std::lround(memory->value))) return &found;
    }
    return nullptr;
  }

  // Each of these fills a part of the setting, or says why there is none.
  std::string set_device(const PublishedRow& row, PublishedSetting& s);
  std::string set_model(const PublishedRow& row, PublishedSetting& s);
  std::string set_engine(const PublishedRow& row, PublishedSetting& s);
  std::string set_deployment(const PublishedRow& row, PublishedSetting& s);
};

PublishedCatalog::PublishedCatalog(fs::path catalog) : names_(std::make_shared<Names>()) {
  Names& names = *names_;
  names.catalog = std::move(catalog);
  const auto add_device = [&names](const std::string& spelt, const std::string& name) {
    names.devices[device_key(spelt)] = names.devices[device_words(spelt)] = name;
  };
  for (const std::string& name : catalog_device_names(names.catalog)) add_device(name, name);
  for (const std::string& name : catalog_model_names(names.catalog)) names.models[model_key(name)] = name;
  for (const OtherName& other : other_names(names.catalog, "devices")) add_device(other.other, other.name);
  for (const OtherName& other : other_names(names.catalog, "models")) names.models[model_key(other.other)] = other.name;
  for (const std::string& name : catalog_engine_names(names.catalog)) {
    names.engines.push_back(find_engine_profile(name, names.catalog));
  }
}

namespace {

// 8-bit caches count a byte an element, those of 4 bits scales of their blocks too; what is not stated is 16 bits, as
// engines have it.
std::optional<KvType> cache_type(const std::string& text) {
  const std::string kv = plain_letters(text);
  for (const char* plain : {"", "fp16", "f16", "bf16", "auto", "16bit", "default", "unspecified", "notstated"}) {
    if (kv == plain) return KvType(DType::kF16);
  }
  for (const char* eight : {"fp8", "int8", "q8"}) {
    if (kv.starts_with(eight)) return KvType(DType::kI8);
  }
  for (const char* four : {"int4", "q4", "fp4", "nvfp4", "mxfp4"}) {
    if (kv.starts_with(four)) return KvType(KvType::kInt4G64);
  }
  return kv == "fp32" || kv == "f32" ? std::optional(KvType(DType::kF32)) : std::nullopt;
}

// Types of weights and cache, or why they are unknown.
Result<Deployment> deployment_of(const PublishedRow& row, bool kernel) {
  const std::string& text = row.weight_precision.empty() && kernel ? row.kv_precision : row.weight_precision;
  const auto weights = parse_weight_format(text);
  if (!weights) return failure("no such weight format: {}", text.empty() ? "none is stated" : text);
  const auto kv = cache_type(row.kv_precision);
  if (!kv) return failure("no such type of the KV cache: {}", row.kv_precision);
  const DType activations = weights->name == "f32" ? DType::kF32 : DType::kBF16;
  Deployment deployment({activations, *kv}, *weights);
  deployment.top_p = by_top_p(row.conditions);
  return deployment;
}

// Priced by itself.
bool is_kernel(const PublishedRow& row) { return row.level == "kernel" && row.metric != "layer_time"; }

// What a field that ought to hold a count is instead.
std::string no_count(std::string_view what, const std::string& text) {
  return text.empty() ? fmt::format("{} is not stated", what) : fmt::format("{} is no count: {}", what, text);
}

std::string read_lengths(const PublishedRow& row, bool kernel, PublishedSetting& s) {
  s.saturated = row.batch_mode == "continuous_max_load" || row.batch == "max";
  s.open_loop = row.batch_mode == "continuous_open_loop";
  if (!s.batch) s.batch = published_count(row.batch.empty() && s.part ? row.input : row.batch);
  if (row.batch_mode == "single_stream" && row.batch.empty()) s.batch = 1;
  if (s.open_loop) {
    s.arrivals = rate_of(row.batch) ? rate_of(row.batch) : rate_of(row.conditions);
    s.batch.reset();
  }
  const bool layer = row.metric == "layer_time" || s.part;
  const bool product = kernel && row.model.starts_with("GEMM");
  const bool of_batch = row.level != "capacity" && !product;
  if (!s.batch && !s.saturated && !s.open_loop && of_batch) return no_count("the batch", row.batch);
  for (const std::string* text : {&row.batch, &row.input, &row.output}) {
    if (text->starts_with('-')) return fmt::format("a negative count: {}", *text);
  }
  const auto input = published_count(row.input), output = published_count(row.output);
  if (!kernel && !layer && !input && row.level != "capacity") {
    return no_count("the length of the prompt", row.input);
  }
  s.input = std::max(input.value_or(1), 1U);
  s.output = std::max(output.value_or(kUnstatedOutput), 1U);
  s.equal_lengths = equal_lengths(row.conditions, s.input, s.output);
  const double share = mean_share(row.conditions);
  for (std::uint32_t* length : {&s.input, &s.output}) {
    *length = std::max(1U, static_cast<std::uint32_t>(std::lround(share * *length)));
  }
  if (s.batch && (*s.batch == 0 || *s.batch > kMostBatch)) return "a batch that no run has";
  if (s.input > kMostTokens || s.output > kMostTokens) return "lengths that no run has";
  return {};
}

}  // namespace

std::string PublishedCatalog::Names::set_device(const PublishedRow& row, PublishedSetting& s) {
  const std::string board = one_board(row.gpu);
  const Device* device = device_called(board);
  if (device == nullptr) return no_device(board);
  s.device = *device;
  s.devices = row.gpus;
  // A board below its power limit runs slower: power falls with the cube of the clock.
  const std::size_t at = row.gpu.find('@');
  const auto watts = at == std::string::npos ? std::nullopt : published_count(std::string_view(row.gpu).substr(at));
  if (watts && *watts == 0) return fmt::format("a board without power: {}", row.gpu);
  if (watts && s.device.fact(DeviceField::kPowerW) && *watts < s.device.value(DeviceField::kPowerW)) {
    const double clock = std::cbrt(*watts / s.device.value(DeviceField::kPowerW));
    for (const DeviceField f : {DeviceField::kLinearFraction, DeviceField::kAttentionFraction,
                                DeviceField::kMatmulFraction}) {
      s.device.fact(f)->value *= clock;
    }
  }
  return {};
}

std::string PublishedCatalog::Names::set_model(const PublishedRow& row, PublishedSetting& s) {
  const bool of_part = row.metric == "layer_time" || row.metric == "kernel_time";
  if (const auto gpt = sized_gpt(row.model)) {
    s.shape = *gpt;
  } else if (const ModelShape* known = model_called(row.model)) {
    s.shape = *known;
  } else if (const auto part = of_part ? part_of(row.model, s.shape) : std::nullopt) {
    s.part = part->op;
    s.batch = part->tokens;
  } else if (is_kernel(row)) {
    s.shape = model("llama-2-7b");  // any: kernels are priced by themselves
  } else {
    return fmt::format("no such model in the catalog: {}{}", row.model, nearest(model_key(row.model), models));
  }
  return {};
}

std::string PublishedCatalog::Names::set_engine(const PublishedRow& row, PublishedSetting& s) {
  const EngineProfile* known = engine(row.engine);
  if (is_kernel(row)) {
    s.engine = find_engine_profile("graphs", catalog);
  } else if (known == nullptr) {
    return no_engine(row.engine);
  } else {
    s.engine = known->of(row.engine_version, s.device.architecture, gib(s.device.usable_memory()));
  }
  if (s.engine.graphs && without_graphs(row.conditions)) {
    s.engine.graphs = false;
    if (s.engine.eager_launch_us > 0) s.engine.launch_us = s.engine.eager_launch_us;
  }
  return {};
}

std::string PublishedCatalog::Names::set_deployment(const PublishedRow& row, PublishedSetting& s) {
  const auto deployment = deployment_of(row, is_kernel(row));
  if (!deployment) return deployment.error();
  s.deployment = deployment.value();
  const auto& small = s.engine.small_cache_with;
  if (row.kv_precision.empty() && std::ranges::find(small, s.deployment.weights.name) != small.end()) {
    s.deployment.types.kv = DType::kI8;
  }
  const auto layout = layout_of(row, s.engine, s.shape.experts > 0);
  if (!layout) return fmt::format("no such layout over devices: {} on {}", row.parallelism, row.gpus);
  s.deployment.tensor_parallel = layout->tensor;
  s.deployment.expert_parallel = layout->experts;
  s.deployment.data_parallel = layout->groups;
  s.deployment.stages = layout->stages;
  s.replicas = layout->replicas;
  return deployment_problem(s.shape, s.deployment);
}

Result<PublishedSetting> PublishedCatalog::setting(const PublishedRow& row) const {
  PublishedSetting s;
  for (const auto part : {&Names::set_device, &Names::set_model, &Names::set_engine, &Names::set_deployment}) {
    if (std::string problem = (*names_.*part)(row, s); !problem.empty()) return Failure{std::move(problem)};
  }
  if (std::string problem = read_lengths(row, is_kernel(row), s); !problem.empty()) return Failure{std::move(problem)};
  if (s.batch) s.batch = (*s.batch + s.replicas - 1) / s.replicas;
  if (s.arrivals) s.arrivals = *s.arrivals / s.replicas;
  return s;
}

}  // namespace kvroof
