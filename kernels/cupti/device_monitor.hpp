// Clocks, power and temperature of the device, from NVML, where CUPTI gives none.
#pragma once

#include <memory>
#include <string>

#include "kernels/cupti/machine.hpp"
#include "sim/core/error.hpp"
#include "traces/kernel_records.hpp"

namespace kvroof {

class DeviceMonitor {
 public:
  virtual ~DeviceMonitor() = default;
  // Of this moment, by the clock of the engine's steps; what the device does not tell is 0. From any thread.
  virtual EnvironmentRecord read() = 0;
};

// NVML, loaded by name, for the device at an address of the PCI bus, which the records call device 0. A failure is one
// sentence: not found, not NVML, no such device, or nothing that it tells of it.
Result<std::unique_ptr<DeviceMonitor>> open_device_monitor(const Machine& machine, const std::string& pci_bus);

// Of what this process calls device 0, whichever GPU of the machine that is. A failure: no driver or no device.
Result<std::string> pci_bus_of_device();

}  // namespace kvroof
