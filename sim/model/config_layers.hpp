// Lists of config.json that say what each layer is, of families whose layers are not all alike.
#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "sim/model/config_decoder.hpp"

namespace kvroof {

// A list of one name for each layer, which may name layers behind the last one as well (they draft tokens).
struct LayerList {
  std::string_view key;
  std::string_view name;        // of the layers that are asked for
  std::string_view other_name;  // of all others
};
// Which layers have the list's name; where there is no list, what `fallback` says.
std::vector<bool> read_layer_list(ConfigFields& fields, const LayerList& list, std::uint32_t layers,
                                  const std::function<bool(std::uint32_t layer)>& fallback);
// The same of a list of numbers: 1 where it is so, else 0.
std::vector<bool> read_layer_flags(ConfigFields& fields, std::string_view key, std::uint32_t layers,
                                   const std::function<bool(std::uint32_t layer)>& fallback);
// The same of a list that has the numbers of those layers.
std::vector<bool> read_layer_numbers(ConfigFields& fields, std::string_view key, std::uint32_t layers,
                                     const std::function<bool(std::uint32_t layer)>& fallback);

std::uint32_t count_of(const std::vector<bool>& layers);

// Gives these layers a window, unless no sequence outgrows it.
void set_windows(ModelShape& shape, const std::vector<bool>& sliding, std::uint32_t window);

// Gives these layers heads of their own, unless they are as the shape's.
void set_other_heads(ModelShape& shape, const std::vector<bool>& which, OtherAttention heads);

// The last num_kv_shared_layers have no rows of their own. Refused where no layer before them is of their kind.
void read_sharing(ConfigFields& fields, ModelShape& shape, const std::vector<bool>& sliding);

// Embeddings of each layer under the names of Gemma 3n and 4.
void read_layer_embedding(ConfigFields& fields, ModelShape& shape);

}  // namespace kvroof
