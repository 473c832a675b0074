// Which device of the catalog a driver means by the name that it gives a board.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvroof {

// The device of a catalog that a driver means: the one whose file has this name of it, else the one that its words are
// for.
std::optional<std::string> catalog_name_of(std::string_view recorded, const std::filesystem::path& catalog);

// That of `names` that a driver's words ("NVIDIA A100 80GB PCIe") stand for: each word of a name begins a word of the
// driver's, the first is one, and the longest such name wins. A part of a board (MIG) or another board of like name
// (Laptop, SUPER, Ti, …) is only what has that word in its own name.
std::optional<std::string> name_of_words(std::string_view recorded, const std::vector<std::string>& names);

}  // namespace kvroof
