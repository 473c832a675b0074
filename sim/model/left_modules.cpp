#include "sim/model/left_modules.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "sim/core/text.hpp"

namespace kvroof {
namespace {

constexpr std::uint8_t kWhole = 0xff;
constexpr std::uint8_t kQ = 1, kK = 2, kV = 4, kO = 8;
constexpr std::uint8_t kGate = 1, kUp = 2, kDown = 4;

using Suffixes = std::span<const std::pair<std::string_view, std::uint8_t>>;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The projections that a name ends with; 0 where it ends with none of them, or names several at once.
std::uint8_t projections(std::string_view name, Suffixes suffixes) {
  if (has(name, "(")) return 0;
  for (const auto& [suffix, marks] : suffixes) {
    if (name.ends_with(suffix)) return marks;
  }
  return 0;
}

std::uint8_t attention_of(std::string_view name) {
  static constexpr std::pair<std::string_view, std::uint8_t> kSuffixes[] = {
      {"qkv_proj", kQ | kK | kV}, {"q_proj", kQ}, {"k_proj", kK}, {"v_proj", kV}, {"o_proj", kO}};
  if (const std::uint8_t some = projections(name, kSuffixes); some != 0) return some;
  const bool is_attention = has(name, "attn") || has(name, "attention");
  return is_attention && !has(name, "norm") ? kWhole : std::uint8_t{0};
}

std::uint8_t mlp_of(std::string_view name) {
  static constexpr std::pair<std::string_view, std::uint8_t> kSuffixes[] = {
      {"gate_up_proj", kGate | kUp}, {"gate_proj", kGate}, {"up_proj", kUp}, {"down_proj", kDown}};
  if (name.ends_with(".gate") || name.ends_with(".router") || has(name, "expert")) return 0;
  if (const std::uint8_t some = projections(name, kSuffixes); some != 0) return some;
  return has(name, "mlp") || has(name, "feed_forward") ? kWhole : std::uint8_t{0};
}

}  // namespace

LeftModules::LeftModules(const std::vector<std::string>& names) {
  for (const std::string& name : names) add(name);
}

void LeftModules::add(std::string_view given) {
  std::string name(given.starts_with("re:") ? given.substr(3) : given);
  std::erase_if(name, [](char c) { return c == '\\' || c == '^' || c == '$'; });
  while (name.ends_with(".*") || name.ends_with('*')) name.resize(name.size() - (name.ends_with(".*") ? 2 : 1));
  for (const std::string_view tower : {"vision", "visual", "audio", "mtp", "multi_modal"}) {
    if (has(name, tower)) return;
  }
  Marks marks{attention_of(name), mlp_of(name)};
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = name.find(kLayers);
  const std::string_view rest = at == std::string::npos ? std::string_view() : std::string_view(name).substr(at + 7);
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits > 0) {
    const auto layer = parse_number<std::uint32_t>(rest.substr(0, digits));
    if (!layer) return;
    if (digits == rest.size()) marks = {kWhole, kWhole};
    Marks& of_layer = layers_[*layer];
    of_layer.attention |= marks.attention;
    of_layer.mlp |= marks.mlp;
    return;
  }
  // A choice of some layers, as in layers.(0|1), is no pattern for all of them.
  const bool all = rest.empty() || rest.starts_with('*') || rest.starts_with(".*") || rest.starts_with("d+") ||
                   rest.starts_with("[0-9]");
  if (!all) return;
  everywhere_.attention |= marks.attention;
  everywhere_.mlp |= marks.mlp;
}

LeftModules::Marks LeftModules::of_layer(std::uint32_t layer) const {
  Marks marks = everywhere_;
  if (const auto found = layers_.find(layer); found != layers_.end()) {
    marks.attention |= found->second.attention;
    marks.mlp |= found->second.mlp;
  }
  return marks;
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
