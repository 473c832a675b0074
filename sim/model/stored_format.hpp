// How those who published a model store its weights.
#pragma once

#include <filesystem>
#include <string>

namespace kvroof {

// Of a model of the catalog (`stored: mxfp4`), by the name of a format; empty: as its weight_type says. Throws Error
// where the catalog has no such model.
std::string stored_format_of(const std::string& catalog_name, const std::filesystem::path& catalog);
// Of a folder with a config.json, or of such a file, by its quantization_config; empty for what else is there. Throws
// Error (usage) for a config.json that is refused.
std::string stored_format_of(const std::filesystem::path& folder_or_file);

}  // namespace kvroof
