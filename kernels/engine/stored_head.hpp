// A head that a checkpoint holds although its configuration ties the head to the embedding.
#pragma once

#include <string>

#include "kernels/engine/named_tensors.hpp"

namespace kvroof {

// Whether the checkpoint stores both, and they are not one matrix: then the head counts and nothing is tied, as in
// transformers. Reads both up to the first number that differs. Packed ones are not compared.
bool stores_another_head(const NamedTensors& tensors, const std::string& head, const std::string& embedding);

}  // namespace kvroof
