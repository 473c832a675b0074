#include "apps/prediction/engine_hardware.hpp"

#include <fmt/format.h>

#include "apps/cli/data_folder.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

bool runs_on(const WorkloadRequest& request, const Device& device) {
  return !request.engine || device.kind == DeviceKind::kCpu || request.engine_on(device).runs_on_vendor(device.vendor);
}

// Engines of the catalog for accelerators of a vendor.
std::vector<std::string> engines_for(const std::string& vendor) {
  const std::filesystem::path catalog = data_folder() / "catalog";
  std::vector<std::string> names = catalog_engine_names(catalog);
  std::erase_if(names, [&](const std::string& name) {
    const EngineProfile engine = find_engine_profile(name, catalog);
    return engine.on_cpu || !engine.runs_on_vendor(vendor);
  });
  return names;
}

}  // namespace

void check_runs_on(const WorkloadRequest& request, const Device& device) {
  if (runs_on(request, device)) return;
  const EngineProfile& engine = request.engine_on(device);
  throw usage_error(fmt::format("--engine {} and {}: {} runs on devices of {}, and this one is of {}", engine.name,
                                device.name, engine.name, join(engine.runs_on), device.vendor))
      .note(fmt::format("devices of {} run {}; `kvroof engines show NAME` says what an engine runs on", device.vendor,
                        join(engines_for(device.vendor))));
}

std::vector<std::string> take_out_foreign(const WorkloadRequest& request, std::vector<Device>& devices) {
  std::vector<std::string> names;
  for (const Device& device : devices) {
    if (!runs_on(request, device)) names.push_back(device.name);
  }
  std::erase_if(devices, [&](const Device& device) { return !runs_on(request, device); });
  return names;
}

}  // namespace kvroof
