// The answer of `kvroof replay` as a table, JSON or CSV.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/open_closed_loop.hpp"
#include "apps/replay/replay_points.hpp"
#include "apps/replay/row_cache_check.hpp"

namespace kvroof {

struct ReplayAnswer {
  const ReplayRequest& request;
  const TraceManifest& manifest;
  std::uint64_t seed = 0;
  std::span<const PointResult> results;
  std::span<const ReplayPoint> points;
  const OpenClosedReport* open_closed = nullptr;  // null: not asked for
  const RowCacheCheck* row_cache = nullptr;       // null: not compared
};

// Sentences on what the numbers refer to; below the table and in the JSON manifest.
std::vector<std::string> replay_notes(const ReplayAnswer& answer);

// What policies make of their parameters that a user may not expect, a sentence a point.
std::vector<std::string> policy_notes(std::span<const PolicySpec> points, const TraceManifest& manifest);

std::string replay_table(const ReplayAnswer& answer);
std::string replay_json(const ReplayAnswer& answer);
std::string replay_csv(const ReplayAnswer& answer);

}  // namespace kvroof
