#include "sim/policy/spec.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"
#include "sim/policy/policy.hpp"
#include "sim/policy/presets.hpp"

namespace kvroof {
namespace {

// More than any context holds; a position and it add up without a carry.
constexpr std::uint32_t kMostTokens = std::numeric_limits<std::int32_t>::max();

Error bad_value(const PolicySpec& spec, std::string_view key, std::string_view value, const std::string& expected) {
  return usage_error(fmt::format("policy {}: {}=`{}`: expected {}", spec.name, key, shown(value), expected));
}

const PolicyPreset* find_preset(std::string_view name) {
  for (const PolicyPreset& preset : preset_table()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

const PolicyInfo& find_policy(std::string_view name) {
  std::vector<std::string> names;
  for (const PolicyPreset& preset : preset_table()) names.emplace_back(preset.name);
  for (const PolicyInfo& info : policy_table()) {
    if (info.name == name) return info;
    names.emplace_back(info.name);
  }
  if (name.empty())
    throw usage_error("a policy is missing; expected name[:key=value]…").note("policies: " + join(names));
  throw usage_error(fmt::format("unknown policy `{}`{}", shown(name), did_you_mean(name, names)))
      .note("policies: " + join(names));
}

void check_parameter(const PolicyInfo& info, std::string_view key) {
  std::vector<std::string> names;
  if (info.takes_budget) names = {"budget", "compression"};
  for (const ParamInfo& param : info.params) names.emplace_back(param.name);
  if (std::find(names.begin(), names.end(), key) != names.end()) return;
  const std::string known = names.empty() ? "it takes no parameters" : "it takes " + join(names);
  throw usage_error(fmt::format("policy {} has no parameter `{}`{}", info.name, shown(key), did_you_mean(key, names)))
      .note(known);
}

void set_budget(PolicySpec& spec, std::string_view key, std::string_view value) {
  if (spec.has_budget)
    throw usage_error(fmt::format("policy {}: budget and compression say the same thing twice", spec.name));
  auto parsed = key == "budget" ? parse_budget(value) : parse_compression(value);
  spec.budget = std::move(parsed).or_throw(fmt::format("policy {}: {}", spec.name, key), ExitCode::kUsage);
  spec.has_budget = true;
}

bool lacks_budget(const PolicySpec& spec) { return !spec.has_budget && policy_info(spec.name).takes_budget; }

// --budget beside policies of which none lacks one.
Error no_policy_to_serve(const std::vector<PolicySpec>& policies) {
  const auto own = std::ranges::find_if(policies, &PolicySpec::has_budget);
  const std::string& name = policies.front().name;
  const std::string why = own != policies.end() ? own->text() + " has a budget of its own"
                          : policies.front().is_full() ? "full keeps every token"
                                                : name + " takes no budget";
  return usage_error("--budget has no policy to serve: " + why).note("add --policy h2o, for example");
}

// A number, or with a decimal point or % a share.
std::optional<TokensOrShare> number_or_share(std::string_view text) {
  const bool percent = text.ends_with('%');
  const auto value = parse_decimal(percent ? text.substr(0, text.size() - 1) : text);
  if (!value) return std::nullopt;
  return TokensOrShare{percent || text.find('.') != std::string_view::npos, percent ? *value / 100 : *value};
}

// 12.3 / 100 is not the double nearest to 0.123.
bool same_number(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(a); }

bool same_value(const ParamInfo& param, std::string_view a, std::string_view b) {
  const auto x = number_or_share(a), y = number_or_share(b);
  if (!x || !y) return a == b;
  const bool either = param.values.starts_with("tokens | share");  // 1 is a token, 1.0 all of them
  return same_number(x->value, y->value) && (!either || x->is_share == y->is_share);
}

PolicySpec parse_policy(std::string_view text) {
  const auto parts = split(text, ':');
  const PolicyPreset* const preset = find_preset(parts.front());
  const PolicyInfo& info = find_policy(preset != nullptr ? preset->policy : parts.front());
  PolicySpec spec;
  if (preset != nullptr) {
    spec.preset = preset->name;
    spec.kv = preset->kv;
  }
  spec.name = std::string(info.name);
  std::vector<std::string_view> seen;
  for (const std::string_view part : std::span(parts).subspan(1)) {
    const std::size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    check_parameter(info, key);
    if (equals == std::string_view::npos) {
      throw usage_error(fmt::format("policy {}: `{}` has no value; write {}=…", spec.name, shown(key), shown(key)));
    }
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      throw usage_error(fmt::format("policy {}: {} is given twice", spec.name, key));
    }
    seen.push_back(key);
    const std::string_view value = part.substr(equals + 1);
    if (key == "budget" || key == "compression") {
      set_budget(spec, key, value);
    } else {
      spec.params.emplace_back(key, value);
    }
  }
  (void)info.traits(spec);  // validates the values
  return spec;
}

}  // namespace

std::string PolicySpec::text() const {
  std::string all = preset.empty() ? name : preset;
  if (has_budget) {
    const bool compression = budget.kind == Budget::Kind::kCompression;
    all += fmt::format(":{}{}", compression ? "" : "budget=", budget.text);
  }
  for (const auto& [key, value] : params) all += fmt::format(":{}={}", key, value);
  return all;
}

std::optional<std::string_view> PolicySpec::find(std::string_view key) const {
  for (const auto& [name_of_param, value] : params) {
    if (name_of_param == key) return value;
  }
  return std::nullopt;
}

std::uint32_t PolicySpec::count(std::string_view key, std::uint32_t fallback, std::uint32_t least) const {
  const auto text = find(key);
  if (!text) return fallback;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  const bool too_large = error == std::errc::result_out_of_range || value > kMostTokens;
  if (error != std::errc() || end != text->data() + text->size() || value < least || too_large) {
    throw bad_value(*this, key, *text,
                    too_large ? fmt::format("a whole number from {} to {}", least, kMostTokens)
                              : fmt::format("a whole number, at least {}", least));
  }
  return value;
}

double PolicySpec::number(std::string_view key, double fallback, double least, double most) const {
  const auto text = find(key);
  if (!text) return fallback;
  const auto value = parse_decimal(*text);
  if (!value || *value < least || *value > most) {
    throw bad_value(*this, key, *text, fmt::format("a number from {} to {}", least, most));
  }
  return *value;
}

std::string PolicySpec::choice(std::string_view key, std::initializer_list<std::string_view> allowed,
                               std::string_view fallback) const {
  const auto text = find(key);
  if (!text) return std::string(fallback);
  const std::vector<std::string> names(allowed.begin(), allowed.end());
  if (std::find(names.begin(), names.end(), *text) == names.end()) {
    throw bad_value(*this, key, *text, join(names, " or ") + did_you_mean(*text, names));
  }
  return std::string(*text);
}

std::uint32_t TokensOrShare::of(std::uint32_t k) const {
  const double tokens = is_share ? std::floor(value * k + 1e-9) : value;
  return static_cast<std::uint32_t>(std::min(tokens, static_cast<double>(k)));
}

TokensOrShare tokens_or_share(const PolicySpec& spec, std::string_view key, TokensOrShare fallback) {
  const auto text = spec.find(key);
  if (!text) return fallback;
  const auto parsed = number_or_share(*text);
  if (!parsed || parsed->value > (parsed->is_share ? 1 : kMostTokens)) {
    throw bad_value(spec, key, *text, "a number of tokens, or with a decimal point or % a share up to 1");
  }
  if (!parsed->is_share && spec.budget.kind == Budget::Kind::kTokens && parsed->value > spec.budget.value) {
    throw usage_error(
        fmt::format("policy {}: {}={} exceeds the budget of {}", spec.name, key, *text, spec.budget.describe()));
  }
  return *parsed;
}

bool same_decisions(const PolicySpec& a, const PolicySpec& b) {
  // A file may hold what the model's repetition of the prompt gave where there was none.
  const bool asks_model = asks_for(a, HostNeed::kRepetition) || asks_for(b, HostNeed::kRepetition);
  if (a.name != b.name || a.budget.kind != b.budget.kind || !same_number(a.budget.value, b.budget.value)) return false;
  return std::ranges::all_of(policy_info(a.name).params, [&](const ParamInfo& param) {
    const auto ours = a.find(param.name), theirs = b.find(param.name);
    if (param.name == "file" && asks_model) return true;
    if (param.by_rule && (!ours || !theirs)) return !ours && !theirs;
    return same_value(param, ours.value_or(param.fallback), theirs.value_or(param.fallback));
  });
}

std::vector<PolicySpec> parse_policies(std::string_view text) {
  std::vector<PolicySpec> specs;
  for (const std::string_view part : split(text, ',')) specs.push_back(parse_policy(trimmed(part)));
  return specs;
}

std::vector<PolicySpec> cross_budgets(std::vector<PolicySpec> policies, const std::vector<Budget>& budgets) {
  if (!budgets.empty() && std::ranges::none_of(policies, lacks_budget)) throw no_policy_to_serve(policies);
  std::vector<PolicySpec> points;
  for (PolicySpec& spec : policies) {
    if (!lacks_budget(spec)) {
      points.push_back(std::move(spec));
      continue;
    }
    if (budgets.empty()) {
      throw usage_error(fmt::format("policy {} needs a budget", spec.text()))
          .note(fmt::format("give --budget 0.5, or write {}:budget=0.5", spec.name));
    }
    for (const Budget& budget : budgets) {
      PolicySpec point = spec;
      point.budget = budget;
      point.has_budget = true;
      (void)policy_info(point.name).traits(point);  // recent against the budget
      points.push_back(std::move(point));
    }
  }
  return points;
}

}  // namespace kvroof
