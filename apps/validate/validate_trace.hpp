// kvroof validate run.kvt: decode steps of a recorded run against the cost model on the device that ran it.
#pragma once

#include "apps/cli/command.hpp"

namespace kvroof {

int validate_trace(const Arguments& arguments);

}  // namespace kvroof
