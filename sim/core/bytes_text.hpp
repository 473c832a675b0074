// Amounts of memory for people.
#pragma once

#include <cstdint>
#include <string>

namespace kvroof {

// In the largest of B, KiB, MiB, GiB, TiB that leaves at least 1: "1.50 GiB".
std::string bytes_text(double bytes);
inline std::string bytes_text(std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

}  // namespace kvroof
