#include "apps/simulate/simulate_prefix_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/cli/wide_rows.hpp"
#include "apps/prediction/cached_prompt.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "sim/core/number_text.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

// What the cache of a row's servers found and lost; means over the time that they work.
struct PrefixFigures {
  double found_share = 0;        // of tokens of prompts, but for those of the warm-up
  double mean_idle_bytes = 0;    // of each device, in blocks that no running sequence held
  double mean_host_bytes = 0;
  double host_share = 0;         // of all tokens of prompts, read from the host; those that were read again count again
  std::uint64_t evicted_blocks = 0;
};

PrefixFigures prefix_figures(const SimulatedRow& row) {
  PrefixFigures figures;
  const auto& requests = row.outcome.requests;
  double found = 0, counted = 0, all = 0;  // tokens
  for (std::size_t i = 0; i < requests.size(); ++i) {
    all += requests[i].request.prompt;
    if (i < row.outcome.warm_up) continue;
    found += requests[i].cached;
    counted += requests[i].request.prompt;
  }
  const Replica::Totals& totals = row.prefill_replicas > 0 ? row.outcome.prompt_totals : row.outcome.totals;
  figures.found_share = found / counted;
  figures.mean_idle_bytes = totals.idle_byte_seconds / totals.busy_seconds;
  figures.mean_host_bytes = totals.host_byte_seconds / totals.busy_seconds;
  figures.host_share = static_cast<double>(totals.host_tokens_read) / all;
  figures.evicted_blocks = totals.evicted_blocks;
  return figures;
}

std::string computed_whole(const SimulateRequest& request) {
  const bool says_which = request.prefixes.size() > 1;
  return says_which ? "every prompt is computed whole, though the file says which begin alike (hash_ids): "
                      "--cached-prompt trace has prefix caches find that"
                    : "every prompt is computed whole; --cached-prompt says what a prefix cache has of it";
}

bool has_host(const SimulateRequest& request) { return request.prefix_cache->host_gib > 0; }

}  // namespace

std::vector<Table::Column> prefix_columns(const SimulateRequest& request) {
  std::vector<Table::Column> columns = {
      {"prompts found", "found_share"}, {"cached GiB", "mean_cached"}, {"evicted blocks", "evicted_blocks"}};
  if (has_host(request)) columns.insert(columns.end(), {{"on the host GiB", "mean_host"}, {"read", "host_read"}});
  return columns;
}

std::vector<std::string> prefix_cells(const SimulateRequest& request, const SimulatedRow& row) {
  const PrefixFigures f = prefix_figures(row);
  std::vector<std::string> cells = {fmt::format("{:.1f} %", 100 * f.found_share),
                                    number_text(f.mean_idle_bytes / kGiB), std::to_string(f.evicted_blocks)};
  if (!has_host(request)) return cells;
  cells.push_back(number_text(f.mean_host_bytes / kGiB));
  cells.push_back(fmt::format("{:.1f} %", 100 * f.host_share));
  return cells;
}

nlohmann::ordered_json prefix_json(const SimulateRequest& request, const SimulatedRow& row) {
  const PrefixFigures f = prefix_figures(row);
  return if_any(request.prefix_cache.has_value(), {{"shares", row.shares_prefixes},
                                                   {"found_share", f.found_share},
                                                   {"mean_cached_bytes", f.mean_idle_bytes},
                                                   {"evicted_blocks", f.evicted_blocks},
                                                   {"mean_host_bytes", f.mean_host_bytes},
                                                   {"host_read_share", f.host_share}});
}

std::vector<std::string> prefix_notes(const SimulateRequest& request, SimulatedRows rows) {
  const double share = 100 * request.cached_share;
  const std::string lossless = fmt::format(
      "a prefix cache that loses nothing would find {:.1f} % of the prompts if they came one by one", share);
  if (request.no_prefix_cache) return {"every prompt is computed whole; " + lossless};
  std::vector<std::string> losers, copiers;  // policies
  for (const SimulatedRow& row : rows) {
    if (!row.problem.empty() || !row.evicts) continue;
    add_new(row.shares_prefixes ? copiers : losers, row.workload->policy().name);
  }
  if (!request.prefix_cache) {
    if (!(share > 0)) return {computed_whole(request)};
    const bool found = std::ranges::any_of(rows, &SimulatedRow::shares_prefixes);
    return cached_prompt_notes(request.workload.model, request.cached_share, found, losers);
  }
  const PrefixCacheRequest& cache = *request.prefix_cache;
  std::vector<std::string> notes = {
      lossless + (cache.loses_nothing ? "; the servers' own lose nothing"
                                      : fmt::format("; what the servers' own evict first is {}",
                                                    cache.eviction->summary))};
  if (const std::size_t shorter = request.shorter_than_shared; shorter > 0) {
    notes.push_back(fmt::format("drawn prompts that are no longer than what they share: {}, of which all tokens but "
                                "the last are shared", shorter));
  }
  const bool several = std::ranges::any_of(rows, [](const SimulatedRow& row) {
    return row.problem.empty() && row.shares_prefixes && row.replicas * row.deployment->data_parallel > 1;
  });
  if (request.in_conversations() && several && !cache.routes) {
    notes.emplace_back(
        "a turn goes to the server, or group, that has fewest requests, whoever has what was said before: --router "
        "prefix sends it there");
  }
  for (std::string& note : kept_states_notes(request.workload.model)) notes.push_back(std::move(note));
  if (!losers.empty()) {
    notes.push_back(lost_prefixes_note(losers) + "; --evicted-prefix copy has whole ones kept beside");
  }
  if (!copiers.empty()) {
    notes.push_back(fmt::format("{}: whole prompts are kept in the memory that sequences leave, beside what the policy "
                                "keeps of each", join(copiers)));
  }
  return notes;
}

}  // namespace kvroof
