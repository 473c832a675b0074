#include "sim/model/config_fields.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"

namespace kvroof {

struct ConfigFields::Json {
  nlohmann::json root;

  // Null for an absent key.
  [[nodiscard]] const nlohmann::json& at(std::string_view key) const {
    static const nlohmann::json kNull;
    const nlohmann::json* value = &root;
    for (std::size_t dot = 0; dot != std::string_view::npos;) {
      dot = key.find('.');
      const auto it = value->find(std::string(key.substr(0, dot)));  // of what is no object: its end
      if (it == value->end()) return kNull;
      value = &*it;
      if (dot != std::string_view::npos) key.remove_prefix(dot + 1);
    }
    return *value;
  }
};

namespace {

// A value as it stands in the file, cut to a length that fits a message.
std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

constexpr int kDeepest = 32;  // levels of a configuration; deeper ones only come from attackers of recursive code

nlohmann::json parse_shallow(std::string_view text, bool& too_deep) {
  const auto watch = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;  // what is too deep is not even stored
  };
  return nlohmann::json::parse(text, watch, false);
}

bool is_positive(const nlohmann::json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
}

bool is_token_id(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() < (std::uint64_t{1} << 31);
}

}  // namespace

ConfigFields::ConfigFields(std::string_view text) : json_(std::make_unique<Json>()) {
  bool too_deep = false;
  json_->root = parse_shallow(text, too_deep);
  if (too_deep) {
    fail(fmt::format("JSON nested deeper than {} levels", kDeepest));
  } else if (json_->root.is_discarded() || has_zero_byte(text)) {
    fail("not valid JSON");
  } else if (!json_->root.is_object()) {
    fail("expected a JSON object");
  }
  if (failed()) json_->root = nlohmann::json::object();
}

ConfigFields::~ConfigFields() = default;

void ConfigFields::fail(std::string message) {
  if (problem_.empty()) problem_ = std::move(message);
}

void ConfigFields::defaults(std::string_view json_object) {
  const nlohmann::json values = nlohmann::json::parse(json_object);
  for (const auto& [key, value] : values.items()) {
    if (!json_->root.contains(key)) json_->root[key] = value;
  }
}

void ConfigFields::forget(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const std::size_t dot = key.rfind('.');
    nlohmann::json* object = &json_->root;
    if (dot != std::string_view::npos) object = const_cast<nlohmann::json*>(&json_->at(key.substr(0, dot)));
    if (object->is_object()) object->erase(std::string(key.substr(dot + 1)));
  }
}

bool ConfigFields::has(std::string_view key) const { return !json_->at(key).is_null(); }

bool ConfigFields::has_object(std::string_view key) const { return json_->at(key).is_object(); }

bool ConfigFields::bounds_something(std::string_view key) const {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return false;
  const bool pair = value.is_array() && value.size() == 2 && value[0].is_number();
  return !pair || value[0].get<double>() > 0 || value[1].is_number();
}

std::string_view ConfigFields::named(std::initializer_list<std::string_view> keys) {
  std::string_view found;
  for (const std::string_view key : keys) {
    if (!has(key)) continue;
    if (found.empty()) found = key;
    if (json_->at(key) != json_->at(found)) {
      fail(fmt::format("{} is {}, but {} is {}: they name the same", found, shown(json_->at(found)), key,
                       shown(json_->at(key))));
    }
  }
  return found.empty() ? *keys.begin() : found;
}

std::vector<std::string> ConfigFields::names(std::string_view key) const {
  std::vector<std::string> names;
  if (!has_object(key)) return names;
  for (const auto& [name, value] : json_->at(key).items()) names.push_back(name);
  return names;
}

bool ConfigFields::empty(std::string_view key) const { return json_->at(key).empty(); }

bool ConfigFields::is_list(std::string_view key) const { return json_->at(key).is_array(); }
bool ConfigFields::is_text(std::string_view key) const { return json_->at(key).is_string(); }

bool ConfigFields::is_number(std::string_view key, double number) const {
  const nlohmann::json& value = json_->at(key);
  return value.is_number() && value.get<double>() == number;
}

std::uint32_t ConfigFields::whole(std::string_view key, std::optional<std::uint32_t> fallback, std::uint32_t least,
                                  std::uint32_t most) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) {
    if (!fallback) fail(fmt::format("{} is missing", key));
    return fallback.value_or(1);
  }
  const bool good =
      value.is_number_unsigned() && value.get<std::uint64_t>() >= least && value.get<std::uint64_t>() <= most;
  if (!good) {
    fail(fmt::format("{} is {}, expected a whole number from {} to {}", key, shown(value), least, most));
    return std::max(1U, least);
  }
  return value.get<std::uint32_t>();
}

std::uint32_t ConfigFields::size(std::string_view key, std::optional<std::uint32_t> fallback, std::uint32_t most) {
  return whole(key, fallback, 1, most);
}

void ConfigFields::unify(std::string_view key) {
  const nlohmann::json list = json_->at(key);
  if (!list.is_array()) return;
  if (list.empty() || std::ranges::any_of(list, [&](const auto& entry) { return entry != list[0]; })) {
    return refuse(key, "layers that differ in it are not supported");
  }
  json_->root[std::string(key)] = list[0];
}

std::uint32_t ConfigFields::count(std::string_view key, std::uint32_t fallback, std::uint32_t most) {
  return whole(key, fallback, 0, most);
}

double ConfigFields::positive(std::string_view key, std::optional<double> fallback) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) {
    if (!fallback) fail(fmt::format("{} is missing", key));
    return fallback.value_or(1);
  }
  if (!is_positive(value)) {
    fail(fmt::format("{} is {}, expected a number above 0", key, shown(value)));
    return fallback.value_or(1);
  }
  return value.get<double>();
}

std::vector<double> ConfigFields::positives(std::string_view key) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return {};
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_positive)) {
    fail(fmt::format("{} is {}, expected a list of numbers above 0", key, shown(value)));
    return {};
  }
  return value.get<std::vector<double>>();
}

bool ConfigFields::flag(std::string_view key, bool fallback) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) {
    fail(fmt::format("{} is {}, expected true or false", key, shown(value)));
    return fallback;
  }
  return value.get<bool>();
}

std::string ConfigFields::text(std::string_view key, std::string_view fallback) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return std::string(fallback);
  if (!value.is_string()) {
    fail(fmt::format("{} is {}, expected a text", key, shown(value)));
    return std::string(fallback);
  }
  return value.get<std::string>();
}

std::vector<std::string> ConfigFields::texts(std::string_view key) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return {};
  const auto is_text = [](const nlohmann::json& entry) { return entry.is_string(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text)) {
    fail(fmt::format("{} is {}, expected a list of texts", key, shown(value)));
    return {};
  }
  return value.get<std::vector<std::string>>();
}

Activation ConfigFields::activation(std::string_view key, Activation fallback) {
  // The names of transformers' ACT2FN that are built.
  static const std::map<std::string_view, Activation> kNames = {
      {"gelu", Activation::kGelu},
      {"gelu_accurate", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_python", Activation::kGelu},
      {"gelu_python_tanh", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"relu2", Activation::kRelu2},
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu}};
  if (!has(key)) return fallback;
  const std::string name = text(key, "");
  if (const auto it = kNames.find(name); it != kNames.end()) return it->second;
  std::vector<std::string> known;
  for (const auto& [word, activation] : kNames) known.emplace_back(word);
  fail(fmt::format("{} is {}, which is not supported; known: {}", key, shown(json_->at(key)), join(known)));
  return fallback;
}

void ConfigFields::only(std::string_view key, std::initializer_list<std::string_view> allowed, std::string_view why) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return;
  const bool good =
      value.is_string() && std::find(allowed.begin(), allowed.end(), value.get<std::string>()) != allowed.end();
  if (good) return;
  const std::vector<std::string> names(allowed.begin(), allowed.end());
  fail(fmt::format("{} is {}, {}: {}", key, shown(value), why, join(names)));
}

void ConfigFields::only(std::string_view key, bool allowed, std::string_view why) {
  if (flag(key, allowed) != allowed) refuse(key, why);
}

std::vector<std::int64_t> ConfigFields::ids(std::string_view key, std::vector<std::int64_t> fallback) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return json_->root.contains(std::string(key)) ? std::vector<std::int64_t>{} : fallback;
  const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
  if (!std::all_of(list.begin(), list.end(), is_token_id)) {
    fail(fmt::format("{} is {}, expected a token id or a list of them", key, shown(value)));
    return {};
  }
  return list.get<std::vector<std::int64_t>>();
}

DType ConfigFields::weight_type() {
  const std::string_view key = has("torch_dtype") ? "torch_dtype" : "dtype";
  const std::string name = text(key, "float32");
  const auto type = parse_dtype(name);
  if (!type || (*type != DType::kF32 && *type != DType::kF16 && *type != DType::kBF16)) {
    fail(fmt::format("{} is \"{}\", expected float32, float16 or bfloat16", key, name));
    return DType::kF32;
  }
  return *type;
}

void ConfigFields::refuse(std::string_view key, std::string_view why) {
  if (has(key)) fail(fmt::format("{} is {}, but {}", key, shown(json_->at(key)), why));
}

Result<ModelConfig> finish_config(const ConfigFields& fields, ModelConfig config) {
  if (fields.failed()) return fields.failure();
  const std::string problem = shape_problem(config.shape);
  if (!problem.empty()) return Failure{problem};
  return config;
}

}  // namespace kvroof
