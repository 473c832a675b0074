#include "sim/model/left_modules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "sim/core/text.hpp"

namespace kvroof {
namespace {

constexpr std::uint8_t kWhole = 0xff;
constexpr std::uint8_t kQ = 1, kK = 2, kV = 4, kO = 8;
constexpr std::uint8_t kGate = 1, kUp = 2, kDown = 4;

using Endings = std::span<const std::pair<std::string_view, std::uint8_t>>;

// What the last word of a name means: a whole module, or matrices of it.
constexpr std::pair<std::string_view, std::uint8_t> kAttention[] = {
    {"self_attn", kWhole}, {"self_attention", kWhole},   {"attn", kWhole},   {"attention", kWhole},
    {"q_b_proj", kQ},      {"kv_a_proj_with_mqa", kK},   {"kv_b_proj", kV},  {"qkv_proj", kQ | kK | kV},
    {"q_proj", kQ},        {"k_proj", kK},               {"v_proj", kV},     {"o_proj", kO}};
constexpr std::pair<std::string_view, std::uint8_t> kMlp[] = {
    {"mlp", kWhole},      {"feed_forward", kWhole}, {"gate_up_proj", kGate | kUp},
    {"gate_proj", kGate}, {"up_proj", kUp},         {"down_proj", kDown}};

std::uint8_t marks_of(std::string_view name, Endings endings) {
  for (const auto& [ending, marks] : endings) {
    if (!name.ends_with(ending)) continue;
    const std::string_view before = name.substr(0, name.size() - ending.size());
    if (before.empty() || before.back() == '.' || before.back() == '*') return marks;
  }
  return 0;
}

// [qkv] as (q|k|v), and (?:q|k) likewise.
std::string with_groups(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::size_t end = pattern[i] == '[' ? pattern.find(']', i) : std::string_view::npos;
    const std::string_view letters = end != std::string_view::npos ? pattern.substr(i + 1, end - i - 1) : "";
    if (pattern.substr(i).starts_with("(?:")) {
      out += '(';
      i += 2;
    } else if (!letters.empty() && std::ranges::all_of(letters, [](char c) { return c >= 'a' && c <= 'z'; })) {
      out += fmt::format("({})", fmt::join(letters, "|"));
      i = end;
    } else {
      out += pattern[i];
    }
  }
  return out;
}

// The names that a pattern with (a|b) stands for; none where they are more than anybody writes.
std::vector<std::string> alternatives(const std::string& name) {
  constexpr std::size_t kMost = 4096;
  std::vector<std::string> open = {name}, done;
  while (!open.empty() && open.size() + done.size() <= kMost) {
    std::string one = std::move(open.back());
    open.pop_back();
    const std::size_t begin = one.find('('), end = one.find(')', std::min(begin, one.size()));
    if (end == std::string::npos) {
      done.push_back(std::move(one));
      continue;
    }
    for (const std::string_view word : split(std::string_view(one).substr(begin + 1, end - begin - 1), '|')) {
      open.push_back(one.substr(0, begin) + std::string(word) + one.substr(end + 1));
    }
  }
  if (!open.empty()) done.clear();
  return done;
}

// The first part of a name that is a number: its layer. Nothing for a pattern of all layers; for one of some of them,
// as layers.[0-3], a layer that no model has.
std::optional<std::uint32_t> layer_of(std::string_view name) {
  for (const std::string_view part : split(name, '.')) {
    if (const auto layer = parse_number<std::uint32_t>(part)) return layer;
    const bool of_some = part.find_first_of("[{?+") != std::string_view::npos;
    if (of_some && part != "[0-9]+" && part != "d+" && part != "[0-9]") return UINT32_MAX;
  }
  return std::nullopt;
}

}  // namespace

LeftModules::LeftModules(const std::vector<std::string>& names, const std::vector<std::string>& taken) {
  for (const std::string& name : names) left_.add(name);
  const auto is_class = [](const std::string& name) { return !name.empty() && name[0] >= 'A' && name[0] <= 'Z'; };
  if (std::ranges::any_of(taken, is_class)) return;  // all its modules are packed
  bool understood = true;
  for (const std::string& name : taken) understood = taken_.add(name) && understood;
  if (!understood) taken_ = {};
}

bool LeftModules::Named::add(std::string_view given) {
  std::string pattern = with_groups(given.starts_with("re:") ? given.substr(3) : given);
  std::erase_if(pattern, [](char c) { return c == '\\' || c == '^' || c == '$'; });
  if (pattern.ends_with("*_proj")) pattern.resize(pattern.size() - 5);
  while (pattern.ends_with('*') || pattern.ends_with('.')) pattern.pop_back();
  for (const std::string_view other : {"vision", "visual", "audio", "mtp", "multi_modal", "lm_head"}) {
    if (pattern.find(other) != std::string::npos) return true;
  }
  if (pattern.find("expert") != std::string::npos) return experts = true;
  bool understood = true;
  for (const std::string& name : alternatives(pattern)) {
    Marks marks{marks_of(name, kAttention), marks_of(name, kMlp)};
    const auto layer = layer_of(name);
    if (layer && name.ends_with(fmt::format(".{}", *layer))) marks = {kWhole, kWhole};
    if (!marks.attention && !marks.mlp) {
      understood = false;
      continue;
    }
    Marks& named = layer ? layers[*layer] : everywhere;
    named.attention |= marks.attention;
    named.mlp |= marks.mlp;
  }
  return understood;
}

LeftModules::Marks LeftModules::Named::of_layer(std::uint32_t layer) const {
  Marks marks = everywhere;
  if (const auto found = layers.find(layer); found != layers.end()) {
    marks.attention |= found->second.attention;
    marks.mlp |= found->second.mlp;
  }
  return marks;
}

LeftModules::Marks LeftModules::of_layer(std::uint32_t layer) const {
  Marks left = left_.of_layer(layer);
  if (taken_.any()) {
    const Marks taken = taken_.of_layer(layer);
    left.attention |= static_cast<std::uint8_t>(~taken.attention);
    left.mlp |= static_cast<std::uint8_t>(~taken.mlp);
  }
  return left;
}

bool LeftModules::all_attention(std::uint32_t layers) const {
  constexpr std::uint8_t kAll = kQ | kK | kV | kO;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    if ((of_layer(layer).attention & kAll) != kAll) return false;
  }
  return layers > 0;
}

// What is no MLP of a layer is taken for its attention, of which q and o have a part for each query head, k and v for
// each KV head.
double LeftModules::share_of(const ModelShape& shape) const {
  if (shape.layers == 0) return 0;
  const double matrices = shape.mlp == MlpKind::kGated ? 3 : 2;
  const double layer = static_cast<double>(layers_parameters(shape)) / shape.layers;
  const double mlp = std::min(matrices * shape.hidden * shape.ffn, layer);
  const double heads = 2.0 * shape.heads + 2.0 * shape.kv_heads;
  double left = 0;
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    const Marks marks = of_layer(i);
    const double q_o = std::popcount(static_cast<unsigned>(marks.attention & (kQ | kO))) * double{1} * shape.heads;
    const double k_v = std::popcount(static_cast<unsigned>(marks.attention & (kK | kV))) * double{1} * shape.kv_heads;
    left += (layer - mlp) * (q_o + k_v) / heads;
    const auto parts = static_cast<unsigned>(marks.mlp & (matrices > 2 ? kGate | kUp | kDown : kUp | kDown));
    left += mlp * std::popcount(parts) / matrices;
  }
  return left / (layer * shape.layers);
}

}  // namespace kvroof
