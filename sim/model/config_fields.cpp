#include "sim/model/config_fields.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/core/suggest.hpp"

namespace kvroof {

struct ConfigFields::Json {
  nlohmann::json root;

  // Null for an absent key.
  [[nodiscard]] const nlohmann::json& at(std::string_view key) const {
    static const nlohmann::json kNull;
    const auto it = root.find(std::string(key));
    return it == root.end() ? kNull : *it;
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

bool is_token_id(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() < (std::uint64_t{1} << 31);
}

}  // namespace

ConfigFields::ConfigFields(std::string_view text) : json_(std::make_unique<Json>()) {
  bool too_deep = false;
  json_->root = parse_shallow(text, too_deep);
  if (too_deep) {
    fail(fmt::format("JSON nested deeper than {} levels", kDeepest));
  } else if (json_->root.is_discarded()) {
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

bool ConfigFields::has(std::string_view key) const { return !json_->at(key).is_null(); }

std::uint32_t ConfigFields::size(std::string_view key, std::optional<std::uint32_t> fallback, std::uint32_t most) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) {
    if (!fallback) fail(fmt::format("{} is missing", key));
    return fallback.value_or(1);
  }
  const bool good = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 && value.get<std::uint64_t>() <= most;
  if (!good) {
    fail(fmt::format("{} is {}, expected a whole number from 1 to {}", key, shown(value), most));
    return 1;
  }
  return value.get<std::uint32_t>();
}

double ConfigFields::positive(std::string_view key, double fallback) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return fallback;
  const bool good = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
  if (!good) {
    fail(fmt::format("{} is {}, expected a number above 0", key, shown(value)));
    return fallback;
  }
  return value.get<double>();
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

void ConfigFields::only(std::string_view key, std::initializer_list<std::string_view> allowed, std::string_view why) {
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return;
  const bool good =
      value.is_string() && std::find(allowed.begin(), allowed.end(), value.get<std::string>()) != allowed.end();
  if (good) return;
  const std::vector<std::string> names(allowed.begin(), allowed.end());
  fail(fmt::format("{} is {}, {}: {}", key, shown(value), why, join(names)));
}

std::vector<std::int64_t> ConfigFields::ids(std::string_view key, std::vector<std::int64_t> fallback) {
  if (!json_->root.contains(std::string(key))) return fallback;
  const nlohmann::json& value = json_->at(key);
  if (value.is_null()) return {};
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

void ConfigFields::check_unscaled(std::string_view key) {
  const nlohmann::json& value = json_->at(key);
  constexpr std::string_view kWhy = "but only unscaled rotary embedding (\"default\") is supported";
  if (value.is_null()) return;
  if (!value.is_object()) return fail(fmt::format("{} is {}, {}", key, shown(value), kWhy));
  // The kind comes first: it says more than the first of its parameters.
  for (const char* name : {"rope_type", "type"}) {
    const auto kind = value.find(name);
    if (kind != value.end() && !kind->is_null() && *kind != "default") {
      return fail(fmt::format("{}.{} is {}, {}", key, name, shown(*kind), kWhy));
    }
  }
  for (const auto& [name, part] : value.items()) {
    const bool whole = (name == "factor" || name == "partial_rotary_factor") && part == 1.0;
    const bool known = name == "rope_theta" || name == "rope_type" || name == "type";
    if (!known && !whole && !part.is_null()) return fail(fmt::format("{}.{} is {}, {}", key, name, shown(part), kWhy));
  }
}

double ConfigFields::plain_rope_theta(double fallback) {
  check_unscaled("rope_scaling");
  check_unscaled("rope_parameters");
  const double top = positive("rope_theta", fallback);
  const nlohmann::json& parameters = json_->at("rope_parameters");
  if (!parameters.is_object() || !parameters.contains("rope_theta")) return top;
  const nlohmann::json& theta = parameters["rope_theta"];
  if (!theta.is_number() || !std::isfinite(theta.get<double>()) || theta.get<double>() <= 0) {
    fail(fmt::format("rope_parameters.rope_theta is {}, expected a number above 0", shown(theta)));
    return fallback;
  }
  return theta.get<double>();
}

}  // namespace kvroof
