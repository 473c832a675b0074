#include "apps/simulate/simulate_rank.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace kvroof {
namespace {

double served(const SimulateRequest& r, const SimulatedRow& row) {
  if (r.most_clients) return row.clients;
  return r.highest_rate ? row.rate : r.replicas == 0 ? 1 : row.attained.value;
}

// What has no price comes last.
double served_by_cost(const SimulateRequest& r, const SimulatedRow& row) {
  if (!r.by_price) return served_by_device(r, row);
  const auto price = row.usd_per_hour();
  return price ? served(r, row) / price->high_usd : 0;
}

std::pair<bool, double> standing(const SimulateRequest& r, const SimulatedRow& row) {
  return {row.problem.empty() && row.met, row.problem.empty() ? served_by_cost(r, row) : 0};
}

}  // namespace

double served_by_device(const SimulateRequest& r, const SimulatedRow& row) { return served(r, row) / row.devices(); }

bool worse(const SimulateRequest& r, const SimulatedRow& a, const SimulatedRow& b) {
  // As many servers of one price as suffice are more than suffice by different shares.
  const auto share = [&](const SimulatedRow& row) { return r.replicas == 0 ? row.attained.value : 0; };
  const auto worth = [&](const SimulatedRow& row) {
    return std::tuple(standing(r, row), share(row), row.tokens_per_s.value);
  };
  return worth(a) < worth(b);
}

// Tokens/s of requests that come by themselves differ by no more than how soon the last answer ends: of rows within 1 %
// of the first the one whose first tokens come soonest.
const SimulatedRow& best_of(const SimulateRequest& r, SimulatedRows rows) {
  const auto first = std::max_element(rows.begin(), rows.end(),
                                      [&](const SimulatedRow& a, const SimulatedRow& b) { return worse(r, a, b); });
  const SimulatedRow* best = &*first;
  for (const SimulatedRow& row : rows) {
    const bool alike = row.problem.empty() && standing(r, row) == standing(r, *first) &&
                       (r.replicas != 0 || row.attained.value == first->attained.value) &&
                       row.tokens_per_s.value >= 0.99 * first->tokens_per_s.value;
    if (alike && row.latency.first_token.p50.value < best->latency.first_token.p50.value) best = &row;
  }
  return *best;
}

void rank_rows(const SimulateRequest& r, std::vector<SimulatedRow>& rows) {
  if (!r.ranks()) return;
  std::ranges::stable_sort(rows, [&](const SimulatedRow& a, const SimulatedRow& b) { return worse(r, b, a); });
  const auto best = rows.begin() + (&best_of(r, rows) - rows.data());
  std::rotate(rows.begin(), best, best + 1);
}

SimulatedRows shown_rows(const SimulateRequest& r, SimulatedRows rows) {
  return r.ranks() ? rows.first(std::min<std::size_t>(rows.size(), r.top)) : rows;
}

}  // namespace kvroof
