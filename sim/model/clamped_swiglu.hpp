// What gates and ups of gpt-oss's experts become: (up + 1) · g · sigmoid(kSwigluSlope · g), where g is the gate, at
// most kSwigluLimit, and up is clamped to ± kSwigluLimit (arXiv:2508.10925, section 2.2).
#pragma once

namespace kvroof {

inline constexpr float kSwigluSlope = 1.702F;
inline constexpr float kSwigluLimit = 7;

}  // namespace kvroof
