// Names of models and boards, however people spell them: keys that spellings share, and the catalog's other names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvroof {

// Letters and digits in lower case: "H100-SXM 80GB" and "h100_sxm_80gb" are one.
std::string plain_letters(std::string_view text);
// Without the owner, the vendor, and endings that name a tuning or a storage: "meta-llama/Llama-3.1-8B-Instruct".
std::string model_key(std::string_view name);
// Without the vendor and a power limit: "NVIDIA A100-SXM4-80GB@330W".
std::string device_key(std::string_view name);
// Words in any order: "A100 80GB PCIe" is "A100-PCIe-80GB". They begin with a space, as no other key does.
std::string device_words(std::string_view name);

struct OtherName {
  std::string other, name;  // the catalog has the second
};
// A section ("models", "devices") of the catalog's names.yaml, in its order; none where it has no such file. Throws
// Error where the file cannot be read as one.
std::vector<OtherName> other_names(const std::filesystem::path& catalog, const std::string& section);

// Positions of a checkpoint that was made for more or fewer than the catalog's model of its shape, by the section
// "max_positions" of the same file; `typed` is its name without an owner, and may have endings of storages after it.
std::optional<std::uint32_t> own_max_positions(const std::filesystem::path& catalog, std::string_view typed);

// Throws Error (usage) where a file of the catalog says another name than its own: two would answer to one name.
void check_catalog_name(const std::string& name, const std::filesystem::path& file);

// The YAML files of a folder by their names without the ending, sorted. Throws Error where it cannot be read.
std::vector<std::string> yaml_names(const std::filesystem::path& folder);

using NameKey = std::string (*)(std::string_view);
// The name of the catalog that is meant: one of the others by its key, or the only one of the names with that key.
std::optional<std::string> name_in_catalog(std::string_view typed, const std::vector<std::string>& names,
                                           const std::vector<OtherName>& others, NameKey key_of);

}  // namespace kvroof
