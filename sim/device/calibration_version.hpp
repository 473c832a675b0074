// The version that calibration files name, so that one of another meaning is refused.
#pragma once

namespace kvroof {

inline constexpr int kCalibrationVersion = 1;

}  // namespace kvroof
