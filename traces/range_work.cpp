#include "traces/range_work.hpp"

#include <fmt/format.h>

#include <string>

#include "traces/journal.hpp"
#include "traces/kernel_tables.hpp"
#include "traces/sqlite.hpp"

namespace kvroof {
namespace {

// Columns: 0 a range or 1 work, thread, start or launch, end of the range or start of the work, end of the work, kind
// of work, text, row. A call of the runtime may hold one of the driver with its number: the first of them launched.
std::string query_of(const SqliteReader& db) {
  constexpr std::string_view kProcessOf = "/ 16777216";  // kernel_tables.hpp
  std::string sql;
  const auto add = [&](const std::string& select) { sql += (sql.empty() ? "" : " UNION ALL ") + select; };
  if (db.has_table(kRangeTable)) {
    add(fmt::format("SELECT 0, globalTid, start, end, 0, 0, text, rowid FROM {} WHERE end >= start", kRangeTable));
  }
  int kind = 0;
  for (const std::string_view table : {kKernelTable, kCopyTable, kFillTable}) {
    const int of_table = kind++;
    if (!db.has_table(table)) continue;
    if (!db.has_table(kCallTable)) {
      add(fmt::format("SELECT 1, NULL, 0, start, end, {}, NULL, rowid FROM {}", of_table, table));
      continue;
    }
    add(fmt::format("SELECT 1, c.thread, coalesce(c.at, 0), k.start, k.end, {0}, NULL, k.rowid FROM {1} k LEFT JOIN "
                    "(SELECT correlationId AS launched, globalTid AS thread, globalTid {2} AS process, "
                    "min(start) AS at FROM {3} WHERE correlationId > 0 GROUP BY correlationId, globalTid {2}) c "
                    "ON c.launched = k.correlationId AND c.process = coalesce(k.globalPid, 0) {2}",
                    of_table, table, kProcessOf, kCallTable));
  }
  return sql + " ORDER BY 2, 3, 1, 4 DESC, 8";
}

}  // namespace

void for_each_range_and_work(const std::filesystem::path& trace, const std::function<void(const ThreadRange&)>& range,
                             const std::function<void(const LaunchedWork&)>& work) {
  const std::filesystem::path path = trace / kKernelsFile;
  const auto damaged = [&](const std::string& why) {
    return Error(fmt::format("{}: {}", path.string(), why), ExitCode::kDamagedTrace);
  };
  const Result<SqliteReader> db = SqliteReader::open(path);
  if (!db) throw damaged(db.error());
  Result<SqliteRows> selected = SqliteRows::select(db.value(), query_of(db.value()));
  if (!selected) throw damaged(selected.error());
  SqliteRows rows = std::move(selected).value();
  while (rows.next()) {
    if (rows.integer(0) == 0) {
      range({rows.u64(1), rows.u64(2), rows.u64(3), rows.text(6)});
      continue;
    }
    LaunchedWork launched{static_cast<WorkKind>(rows.integer(5)), rows.u64(3), rows.u64(4), std::nullopt,
                          rows.u64(2)};
    if (!rows.null(1)) launched.thread = rows.u64(1);
    work(launched);
  }
  if (rows.problem()) throw damaged(rows.problem()->message);
}

}  // namespace kvroof
