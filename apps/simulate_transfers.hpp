// What `kvroof simulate` says of servers for prompts alone, of caches on their way, and of each request.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/simulate_row.hpp"
#include "apps/wide_rows.hpp"

namespace kvroof {

// A line for each row that has such servers.
Table transfers_table(const SimulateRequest& request, const std::vector<SimulatedRow>& rows);
nlohmann::ordered_json transfers_json(const SimulateRequest& request, const SimulatedRow& row);
// Cells of any row, empty where it has none.
void add_transfers(WideRows& cells, const SimulateRequest& request, const SimulatedRow& row);
// What is assumed of them; nothing where no row has any.
std::vector<std::string> transfer_notes(const SimulateRequest& request, const std::vector<SimulatedRow>& rows);

// What became of each request under each row, as CSV; times in seconds from the first arrival on.
std::string requests_csv(const SimulateRequest& request, const std::vector<SimulatedRow>& rows);

}  // namespace kvroof
