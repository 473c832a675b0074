// The version that calibration files name, so that one of another meaning is refused.
#pragma once

namespace kvroof {

// Version 1 knew no working sets; such a file means what it meant.
inline constexpr int kCalibrationVersion = 2;

}  // namespace kvroof
