// Which of several rows is best: those that meet the goals come before those that do not, and of them the one that
// serves most on each device, or for the money.
#pragma once

#include <vector>

#include "apps/simulate/simulate_row.hpp"

namespace kvroof {

// Requests a second with --rate max, clients with --clients max, all requests with --replicas auto, else the share that
// is in time: on each device.
double served_by_device(const SimulateRequest& request, const SimulatedRow& row);
// Whether a is worse than b; of those that stand alike the one that has fewer requests in time, where servers are
// looked for, and then the one that makes fewer tokens/s.
bool worse(const SimulateRequest& request, const SimulatedRow& a, const SimulatedRow& b);
const SimulatedRow& best_of(const SimulateRequest& request, SimulatedRows rows);
// Best first, where something is looked for or --by was given; else they stay as they were asked for.
void rank_rows(const SimulateRequest& request, std::vector<SimulatedRow>& rows);
// Those of which all tables tell: of ranked rows the first (--top).
SimulatedRows shown_rows(const SimulateRequest& request, SimulatedRows rows);

}  // namespace kvroof
