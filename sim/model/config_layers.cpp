#include "sim/model/config_layers.hpp"

#include <algorithm>

namespace kvroof {
namespace {

std::vector<bool> told_by(std::uint32_t layers, const std::function<bool(std::uint32_t layer)>& says) {
  std::vector<bool> out(layers);
  for (std::uint32_t i = 0; i < layers; ++i) out[i] = says(i);
  return out;
}

bool has_all(ConfigFields& fields, std::string_view key, std::size_t entries, std::uint32_t layers) {
  if (entries >= layers) return true;
  fields.fail(fmt::format("{} has {} entries, expected one for each of the {} layers", key, entries, layers));
  return false;
}

}  // namespace

std::vector<bool> read_layer_list(ConfigFields& fields, const LayerList& list, std::uint32_t layers,
                                  const std::function<bool(std::uint32_t layer)>& fallback) {
  const std::vector<std::string> names = fields.texts(list.key);
  if (names.empty()) return told_by(layers, fallback);
  if (!has_all(fields, list.key, names.size(), layers)) return std::vector<bool>(layers);
  for (const std::string& name : names) {
    if (name == list.name || name == list.other_name) continue;
    fields.fail(fmt::format("{} has \"{}\", which is not supported; known: {}, {}", list.key, name.substr(0, 80),
                            list.name, list.other_name));
  }
  return told_by(layers, [&](std::uint32_t i) { return names[i] == list.name; });
}

std::vector<bool> read_layer_flags(ConfigFields& fields, std::string_view key, std::uint32_t layers,
                                   const std::function<bool(std::uint32_t layer)>& fallback) {
  const std::vector<std::int64_t> flags = fields.ids(key, {});
  if (flags.empty()) return told_by(layers, fallback);
  if (!has_all(fields, key, flags.size(), layers)) return std::vector<bool>(layers);
  for (const std::int64_t flag : flags) {
    if (flag > 1) fields.fail(fmt::format("{} has {}, expected 0 or 1 for each layer", key, flag));
  }
  return told_by(layers, [&](std::uint32_t i) { return flags[i] != 0; });
}

std::vector<bool> read_layer_numbers(ConfigFields& fields, std::string_view key, std::uint32_t layers,
                                     const std::function<bool(std::uint32_t layer)>& fallback) {
  if (!fields.has(key)) return told_by(layers, fallback);
  std::vector<bool> told(layers);
  for (const std::int64_t number : fields.ids(key, {})) {
    if (number < layers) {
      told[static_cast<std::size_t>(number)] = true;
    } else {
      fields.fail(fmt::format("{} has {}, expected numbers of layers below {}", key, number, layers));
    }
  }
  return told;
}

std::uint32_t count_of(const std::vector<bool>& layers) {
  return static_cast<std::uint32_t>(std::ranges::count(layers, true));
}

void set_windows(ModelShape& shape, const std::vector<bool>& sliding, std::uint32_t window) {
  if (window >= shape.max_positions || count_of(sliding) == 0) return;
  for (const bool slides : sliding) shape.layer_windows.push_back(slides ? window : 0);
}

void set_other_heads(ModelShape& shape, const std::vector<bool>& which, OtherAttention heads) {
  const std::uint32_t others = count_of(which);
  const bool alike = heads.heads == shape.heads && heads.kv_heads == shape.kv_heads && !heads.v_of_k &&
                     heads.head_dim == shape.head_dim && heads.v_head_dim == shape.v_head_dim &&
                     !shape.attention_sinks;
  if (others == 0 || alike) return;
  for (std::uint32_t i = 0; i < which.size(); ++i) {
    if (which[i]) heads.layers.push_back(i);
  }
  shape.other = std::move(heads);
}

void read_sharing(ConfigFields& fields, ModelShape& shape, const std::vector<bool>& sliding) {
  shape.sharing_layers = fields.count("num_kv_shared_layers", 0, kMostLayers);
  if (shape.sharing_layers >= shape.layers) {
    return fields.refuse("num_kv_shared_layers", "a model all of whose layers share the caches of another is not "
                                                 "supported");
  }
  const auto first = sliding.begin() + (shape.layers - shape.sharing_layers);
  for (const bool kind : {false, true}) {
    if (std::find(first, sliding.end(), kind) == sliding.end() || std::find(sliding.begin(), first, kind) != first) {
      continue;
    }
    fields.refuse("num_kv_shared_layers", "no layer before those is of the kind of each of them");
  }
}

void read_layer_embedding(ConfigFields& fields, ModelShape& shape) {
  shape.layer_embedding = fields.count("hidden_size_per_layer_input", 0, 1U << 16);
  if (shape.layer_embedding > 0) shape.layer_embedding_rows = fields.size("vocab_size_per_layer_input", 262144U);
}

}  // namespace kvroof
