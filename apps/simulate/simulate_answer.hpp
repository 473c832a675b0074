// The sentence that answers what `kvroof simulate` was asked, and what its rows are called.
#pragma once

#include <string>

#include "apps/simulate/simulate_row.hpp"

namespace kvroof {

// "1 prefill + 3 decode of h100-sxm x 2", "4 of h100-sxm".
std::string devices_text(const SimulatedRow& row);
// The policy, with types where several were asked for.
std::string policy_text(const SimulateRequest& request, const SimulatedRow& row);
// "4 of h100-sxm under full".
std::string who_text(const SimulateRequest& request, const SimulatedRow& row);
// "3 to 5", "62 or more": of servers or clients that are looked for.
std::string numbers_text(const Estimate& e);
// "4.2 (3.1 or more)" where a rate has no upper end.
std::string rate_with_interval(const Estimate& e);
// The sentence before the tables.
std::string answer_text(const SimulateRequest& request, SimulatedRows rows);

}  // namespace kvroof
