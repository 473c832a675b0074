// Records of what the device does, where the device itself gives them: the emulator. A GPU's come from CUPTI.
#pragma once

namespace kvroof {
class ActivityApi;
}

namespace kvroof::cuda {

// Null: ask CUPTI.
ActivityApi* device_activity();
// The emulator's, which answers as CUPTI does.
ActivityApi* emulated_activity();

}  // namespace kvroof::cuda
