// Which device of the catalog a driver means by the name that it gives a board.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvroof {

// The device of `catalog` that a driver's name ("NVIDIA A100 80GB PCIe") stands for: each word of the catalog's name
// begins a word of the driver's, the first is one, and the longest such name wins. A part of a board (MIG) or another
// board of like name (Laptop, SUPER, Ti, …) is only what has that word in its own name.
std::optional<std::string> catalog_name_of(std::string_view recorded, const std::vector<std::string>& catalog);

}  // namespace kvroof
