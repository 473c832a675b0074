// What the groups of measure_limits share: how long a row takes.
#pragma once

#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

inline double seconds_a_row(const Options& options) { return options.small ? 0.01 : 0.25; }

}  // namespace kvroof::suite
