// What `kvroof simulate` says of servers for prompts alone, of caches on their way, and of each request.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/cli/table.hpp"
#include "apps/simulate/simulate_row.hpp"

namespace kvroof {

// A line for each row that has such servers.
Table transfers_table(const SimulateRequest& request, SimulatedRows rows);
// What those servers are and do, and how caches move, of any row; keys without values where it has none.
nlohmann::ordered_json prefill_json(const SimulatedRow& row);
nlohmann::ordered_json transfers_json(const SimulateRequest& request, const SimulatedRow& row);
// What is assumed of them; nothing where no row has any.
std::vector<std::string> transfer_notes(const SimulateRequest& request, SimulatedRows rows);

// What became of each request under each row, as CSV; times in seconds from the first arrival on.
std::string requests_csv(const SimulateRequest& request, SimulatedRows rows);

}  // namespace kvroof
