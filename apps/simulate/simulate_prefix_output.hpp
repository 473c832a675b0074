// What prefix caches of simulated servers found, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/cli/table.hpp"
#include "apps/simulate/simulate_row.hpp"

namespace kvroof {

// Columns of a table, and the cells of a row that has no problem. A prefix cache was asked for.
std::vector<Table::Column> prefix_columns(const SimulateRequest& request);
std::vector<std::string> prefix_cells(const SimulateRequest& request, const SimulatedRow& row);

// Of any row; keys without values where no prefix cache was asked for.
nlohmann::ordered_json prefix_json(const SimulateRequest& request, const SimulatedRow& row);

// What a reader of the rows must know of it, a sentence each.
std::vector<std::string> prefix_notes(const SimulateRequest& request, SimulatedRows rows);

}  // namespace kvroof
