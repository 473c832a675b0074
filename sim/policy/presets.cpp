// The table of all presets: a new one is a line here.
#include "sim/policy/presets.hpp"

#include <array>

namespace kvroof {

std::span<const PolicyPreset> preset_table() {
  static constexpr std::array kPresets = {
      PolicyPreset{"scissorhands-4bit", "scissorhands", KvType::kInt4G64,
                   "scissorhands on a cache of 4 bits with a minimum and a scale for each 64 channels",
                   "Scissorhands (arXiv:2305.17118) with FlexGen's group-wise quantisation"},
  };
  return kPresets;
}

}  // namespace kvroof
