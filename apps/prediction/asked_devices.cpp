#include "apps/prediction/asked_devices.hpp"

#include <fmt/format.h>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/values.hpp"
#include "apps/prediction/engine_hardware.hpp"

namespace kvroof {
namespace {

std::vector<Device> all_gpus(const std::filesystem::path& catalog) {
  std::vector<Device> devices;
  for (const std::string& name : catalog_device_names(catalog)) devices.push_back(find_device(name, catalog));
  std::erase_if(devices, [](const Device& device) { return device.kind == DeviceKind::kCpu; });
  return devices;
}

std::vector<Device> named_devices(const std::string& text, const std::filesystem::path& catalog) {
  std::vector<Device> devices;
  for (const std::string& name : split_list("device", text)) {
    devices.push_back(find_device(name, catalog));
    for (std::size_t i = 0; i + 1 < devices.size(); ++i) {
      if (devices[i].name != devices.back().name) continue;
      throw usage_error(fmt::format("--device {}: {} is there twice", text, name))
          .note("a calibrated file of the same device needs another name in its first line to stand beside it");
    }
  }
  return devices;
}

}  // namespace

std::vector<Device> asked_devices(const Arguments& arguments, WorkloadRequest& request) {
  if (!arguments.has("device")) throw usage_error("--device is missing: `kvroof devices` lists the names");
  const auto& text = arguments.get<std::string>("device");
  const std::filesystem::path catalog = data_folder() / "catalog";
  if (text != "all") {
    std::vector<Device> devices = named_devices(text, catalog);
    for (const Device& device : devices) check_runs_on(request, device);
    return devices;
  }
  std::vector<Device> devices = all_gpus(catalog);
  request.foreign = take_out_foreign(request, devices);
  return devices;
}

}  // namespace kvroof
