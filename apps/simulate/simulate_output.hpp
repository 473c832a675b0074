// The results of `kvroof simulate` for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "apps/simulate/simulate_row.hpp"

namespace kvroof {

std::string simulate_table(const SimulateRequest& request, SimulatedRows rows);
std::string simulate_json(const SimulateRequest& request, SimulatedRows rows);
std::string simulate_csv(const SimulateRequest& request, SimulatedRows rows);
// Shares of requests that had their first token by so many milliseconds, a line for each row.
std::string simulate_svg(const SimulateRequest& request, SimulatedRows rows);

}  // namespace kvroof
