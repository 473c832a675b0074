// Groups of devices that wait for each other, to which prompts come by chance.
#pragma once

#include <cstdint>

namespace kvroof {

// How many of `count` prompts the group with most of them has, expected, where each comes to any of the groups alike:
// exactly of 64 and fewer, else as if the counts of groups were independent (Poisson), 2 % more.
double expected_fullest(std::uint32_t count, std::uint32_t groups);

}  // namespace kvroof
