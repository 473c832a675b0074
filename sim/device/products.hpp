// Which numbers the architectures of devices multiply.
#pragma once

#include "sim/device/device.hpp"

namespace kvroof {

// Whether a device multiplies no numbers of the type that `peak` (of fp8, fp4 or int8) is the rate of, by its
// architecture: vendors' whitepapers name what their matrix units take. False where that is not known.
bool lacks_products(const Device& device, DeviceField peak);

}  // namespace kvroof
