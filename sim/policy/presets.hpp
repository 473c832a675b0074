// Names that stand for a policy together with a type of its cache.
#pragma once

#include <span>
#include <string_view>

#include "sim/core/kv_type.hpp"

namespace kvroof {

struct PolicyPreset {
  std::string_view name;
  std::string_view policy;  // whose parameters and budget it takes
  KvType kv;
  std::string_view summary;  // one sentence
  std::string_view source;
};

// All of them, sorted by name.
std::span<const PolicyPreset> preset_table();

}  // namespace kvroof
