// Models of any shape with random weights: speed and memory do not depend on what the weights are.
#pragma once

#include "kernels/engine/model.hpp"

namespace kvroof {

// All weights have their sizes and their Weight::random, and few have elements yet: a device makes them itself, and
// make_elements() (elements.hpp) puts them into memory. `type` is f32, f16 or bf16. Matrices keep the scale of what
// passes through them; norms scale by about 1, biases are small. Throws Error (usage) for a family whose weights the
// engine does not know.
Model random_model(ModelConfig config, DType type, std::uint64_t seed);

}  // namespace kvroof
