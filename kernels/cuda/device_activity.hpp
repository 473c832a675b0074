// Records of what the device does, where the device itself gives them: the emulator. A GPU's come from CUPTI.
#pragma once

namespace kvroof {
class ActivityApi;
}

namespace kvroof::cuda {

// Null: ask CUPTI.
ActivityApi* device_activity();
// The emulator's, which answers as CUPTI does; null where KVROOF_EMULATED_CUPTI of the environment is set: whatever
// libcupti.so.13 is found is asked, and told of the launches (tests/support/made_cuda).
ActivityApi* emulated_activity();

}  // namespace kvroof::cuda
