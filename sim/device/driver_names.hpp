// Names that drivers give to boards of the catalog.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace kvroof {

// By the driver's name, the device's: `driver_names` of catalog/devices, for boards whose form the driver's words do
// not tell. Throws Error where a file is no device file.
std::map<std::string, std::string> catalog_driver_names(const std::filesystem::path& catalog);

}  // namespace kvroof
