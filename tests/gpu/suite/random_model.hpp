// Models of a published shape with random weights: speed does not depend on what the weights are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/engine/model.hpp"

namespace kvroof::suite {

// Of the catalog: gpt-j-6b, mpt-7b, llama-2-7b, llama-3-8b.
std::vector<std::string> random_model_names();

// The published config.json with random bf16 weights, which the device makes. `positions` above the published context
// are allowed. `small`: two thin layers, for the emulator. `layers`: so many of them, 0: as published. Throws Error for
// an unknown name.
Model random_model(const std::string& name, std::uint32_t positions, bool small, std::uint32_t seed,
                   std::uint32_t layers = 0);

}  // namespace kvroof::suite
