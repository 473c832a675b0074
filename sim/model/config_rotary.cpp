#include "sim/model/config_rotary.hpp"

#include <algorithm>
#include <vector>

#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

using Names = std::vector<std::string>;

struct Kind {
  std::string_view name;
  Names keys;  // that it knows, beside kCommonKeys; some of them say nothing in transformers either
  void (*scale)(ConfigFields& fields, const std::string& section, RotaryRule& rule);
};

const Names kCommonKeys = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};

// The one that stands outside counts before that in the section, as transformers has it for Phi-3; where each layer
// type has a section of its own, it does not count.
std::uint32_t original_length(ConfigFields& fields, const std::string& section) {
  const std::string key = "original_max_position_embeddings";
  const bool of_layer_type = section.find('.') != std::string::npos;
  if (fields.has(key) && !of_layer_type) return fields.size(key);
  return fields.size(section + "." + key, fields.size("max_position_embeddings", 2048U));
}

void read_dynamic(ConfigFields& fields, const std::string& section, RotaryRule& rule) {
  const double factor = fields.positive(section + ".factor");
  if (rule.dims > 2 && factor >= 1) rule.dynamic_factor = factor;
}

void leave(ConfigFields&, const std::string&, RotaryRule&) {}

void read_linear(ConfigFields& fields, const std::string& section, RotaryRule& rule) {
  scale_linear(rule, fields.positive(section + ".factor"));
}

void read_llama3(ConfigFields& fields, const std::string& section, RotaryRule& rule) {
  const Llama3Scaling scaling = {fields.positive(section + ".factor"), fields.positive(section + ".low_freq_factor"),
                                 fields.positive(section + ".high_freq_factor"),
                                 static_cast<double>(original_length(fields, section))};
  if (scaling.high_frequency < scaling.low_frequency) {
    return fields.fail(fmt::format("{}.high_freq_factor is {}, expected at least low_freq_factor ({})", section,
                                   scaling.high_frequency, scaling.low_frequency));
  }
  scale_llama3(rule, scaling);
}

// attention_factor, or what mscale and mscale_all_dim (DeepSeek) together, or else the factor alone say.
double read_yarn_magnitude(ConfigFields& fields, const std::string& section, double factor) {
  const double numerator = read_yarn_mscale(fields, section, ".mscale");
  const double denominator = read_yarn_mscale(fields, section, ".mscale_all_dim");
  const double fallback = numerator > 0 && denominator > 0
                              ? yarn_magnitude(factor, numerator) / yarn_magnitude(factor, denominator)
                              : yarn_magnitude(factor);
  return fields.positive(section + ".attention_factor", fallback);
}

void read_yarn(ConfigFields& fields, const std::string& section, RotaryRule& rule) {
  YarnScaling scaling;
  scaling.factor = fields.positive(section + ".factor");
  scaling.original = original_length(fields, section);
  scaling.beta_fast = fields.positive(section + ".beta_fast", 32);
  scaling.beta_slow = fields.positive(section + ".beta_slow", 1);
  scaling.truncate = fields.flag(section + ".truncate", true);
  scaling.magnitude = read_yarn_magnitude(fields, section, scaling.factor);
  if (rule.theta <= 1) return fields.fail(fmt::format("rope_theta is {}, expected more than 1 for yarn", rule.theta));
  scale_yarn(rule, scaling);
}

void read_longrope(ConfigFields& fields, const std::string& section, RotaryRule& rule) {
  LongropeScaling scaling;
  scaling.short_factors = fields.positives(section + ".short_factor");
  scaling.long_factors = fields.positives(section + ".long_factor");
  scaling.original = original_length(fields, section);
  for (const auto& [key, factors] :
       {std::pair(".short_factor", scaling.short_factors), std::pair(".long_factor", scaling.long_factors)}) {
    if (factors.size() != rule.dims / 2) {
      return fields.fail(fmt::format("{}{} has {} numbers, expected one for each of the {} pairs of a head", section,
                                     key, factors.size(), rule.dims / 2));
    }
  }
  if (scaling.original < 2) {
    return fields.fail("original_max_position_embeddings is 1, expected at least 2 for longrope");
  }
  const double ratio = static_cast<double>(fields.size("max_position_embeddings", 2048U)) / scaling.original;
  const double factor = fields.positive(section + ".factor", ratio);
  scaling.magnitude =
      fields.positive(section + ".attention_factor", longrope_magnitude(factor, static_cast<double>(scaling.original)));
  scale_longrope(rule, scaling);
}

const std::vector<Kind> kKinds = {
    {"default", {"original_max_position_embeddings"}, leave},
    {"linear", {"factor", "original_max_position_embeddings"}, read_linear},
    {"dynamic", {"factor", "original_max_position_embeddings"}, read_dynamic},
    {"llama3", {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}, read_llama3},
    {"yarn",
     {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate", "attention_factor",
      "attn_factor", "mscale", "mscale_all_dim", "finetuned"},
     read_yarn},
    {"longrope",
     {"factor", "original_max_position_embeddings", "short_factor", "long_factor", "attention_factor"},
     read_longrope},
};

std::string kind_key(const ConfigFields& fields, const std::string& section) {
  return section + (fields.has(section + ".rope_type") ? ".rope_type" : ".type");
}

std::string kind_name(ConfigFields& fields, const std::string& section) {
  const std::string name = fields.text(kind_key(fields, section), "default");
  return name == "su" ? "longrope" : name;  // Phi-3's first name for it
}

const Kind* find_kind(ConfigFields& fields, const std::string& section) {
  const std::string name = kind_name(fields, section);
  Names known;
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return &kind;
    known.emplace_back(kind.name);
  }
  fields.refuse(kind_key(fields, section),
                "this kind is not supported; known: " + join(known) + did_you_mean(name, known));
  return nullptr;
}

void refuse_unknown_keys(ConfigFields& fields, const std::string& section, const Kind& kind,
                         std::span<const std::string_view> own_keys) {
  for (const std::string& name : fields.names(section)) {
    const auto in = [&](const Names& keys) { return std::find(keys.begin(), keys.end(), name) != keys.end(); };
    if (!in(kCommonKeys) && !in(kind.keys) && std::ranges::find(own_keys, name) == own_keys.end()) {
      fields.refuse(section + "." + name,
                    fmt::format("it is not supported in a rotary embedding of kind \"{}\"", kind.name));
    }
  }
}

// Elements that turn: all of them, or a share that is cut to a whole number.
std::uint32_t rotated_dims(ConfigFields& fields, const std::string& section, const RotaryRequest& request) {
  std::string key = section + ".partial_rotary_factor";
  if (!fields.has(key)) key = request.share_key;
  const double share = fields.positive(key, 1.0);
  if (share == 1) return request.dims;
  if (!request.partial) fields.refuse(key, "this family rotates whole heads; a part is not supported");
  const auto dims = static_cast<std::uint32_t>(std::min(share, 1.0) * request.dims);
  if (share > 1 || dims < 2 || dims % 2 != 0) {
    fields.refuse(key, fmt::format("of heads of {} that is no even number of elements", request.dims));
    return request.dims;
  }
  return dims;
}

double read_theta(ConfigFields& fields, const std::string& section, std::string_view outer) {
  const std::string inner = section + ".rope_theta";
  const std::string key = fields.has(inner) ? inner : std::string(outer);
  const double theta = fields.positive(key, 10000.0);
  if (theta >= 1) return theta;
  fields.fail(fmt::format("{} is {}, expected at least 1", key, theta));
  return 10000.0;
}

}  // namespace

double read_yarn_mscale(ConfigFields& fields, const std::string& section, std::string_view key) {
  const std::string name = section + std::string(key);
  return fields.is_number(name, 0) ? 0 : fields.positive(name, 0);
}

std::string rotary_section(const ConfigFields& fields, std::string_view layer_type) {
  const std::string typed = fmt::format("rope_parameters.{}", layer_type);
  if (!layer_type.empty() && fields.has_object(typed)) return typed;
  return fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
}

RotaryRule read_rotary(ConfigFields& fields, const RotaryRequest& request) {
  if (fields.has_object("rope_parameters")) {
    fields.refuse("rope_scaling", "rope_parameters are there too; only one of them is expected");
  }
  const std::string section = rotary_section(fields, request.layer_type);
  if (fields.has(section) && !fields.has_object(section)) fields.refuse(section, "an object is expected");
  RotaryRule rule = plain_rotary(request.style, rotated_dims(fields, section, request),
                                 read_theta(fields, section, request.theta_key));
  const Kind* kind = find_kind(fields, section);
  if (kind == nullptr) return rule;
  refuse_unknown_keys(fields, section, *kind, request.own_keys);
  if (!fields.failed()) kind->scale(fields, section, rule);
  return rule;
}

std::uint32_t yarn_reach(ConfigFields& fields) {
  const std::string section = rotary_section(fields);
  if (fields.text(kind_key(fields, section), "default") != "yarn") return 0;
  constexpr double kMost = 1U << 24;
  const double reach = fields.positive(section + ".factor") * original_length(fields, section);
  return static_cast<std::uint32_t>(std::min(reach, kMost));
}

}  // namespace kvroof
