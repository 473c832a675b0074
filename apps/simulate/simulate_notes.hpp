// What a reader of `kvroof simulate` should know beside its figures.
#pragma once

#include <string>
#include <vector>

#include "apps/simulate/simulate_row.hpp"

namespace kvroof {

// What the requests are, what became of rows that have no figures, what runs are too short for, and what is assumed.
std::vector<std::string> simulate_notes(const SimulateRequest& request, SimulatedRows rows);

}  // namespace kvroof
