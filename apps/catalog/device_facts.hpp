// What is known of a device, a fact a row.
#pragma once

#include "apps/cli/table.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

Table device_facts(const Device& device);

}  // namespace kvroof
