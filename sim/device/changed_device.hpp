// What if a device had other facts: "h200:bandwidth_gb_per_s=8000:l2_mib=2x".
#pragma once

#include <string_view>

#include "sim/device/device.hpp"

namespace kvroof {

// The device with facts replaced: `changes` is fact=value[:fact=value]…, keys and units as in device files, "1.5x" a
// multiple of what the device has. What a bus and its pins say of the bandwidth, and memory as marketed and as usable,
// follow each other. What kernels achieve was measured without the change: a prior from now on (fill_from_silicon), as
// wide as one of `defaults`; the price stays. Throws Error (usage): an unknown fact, a value that no device has, a fact
// given twice, bandwidth of a device that was measured size by size.
Device changed_device(const Device& device, std::string_view changes, const Device& defaults);

}  // namespace kvroof
