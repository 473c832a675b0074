#include "sim/device/driver_names.hpp"

#include <yaml-cpp/yaml.h>

#include "sim/core/files.hpp"
#include "sim/core/names.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

std::map<std::string, std::string> catalog_driver_names(const std::filesystem::path& catalog) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  std::map<std::string, std::string> devices;
  for (const std::string& name : catalog_device_names(catalog)) {
    const std::filesystem::path file = catalog / "devices" / (name + ".yaml");
    const std::string text = read_text_file(file, kMostBytes).or_throw(file.string(), ExitCode::kUsage);
    if (text.find("driver_names:") == std::string::npos) continue;  // most have none: they are not parsed
    static_cast<void>(device_from_yaml(text).or_throw(file.string(), ExitCode::kUsage));
    for (const YAML::Node& driver : YAML::Load(text)["driver_names"]) devices.emplace(driver.as<std::string>(), name);
  }
  return devices;
}

}  // namespace kvroof
