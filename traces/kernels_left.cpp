#include "traces/kernels_left.hpp"

#include <algorithm>

#include "sim/core/files.hpp"
#include "traces/checksum.hpp"
#include "traces/sqlite.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

// SQLite tells of one page in a line of its own, which a sentence has no room for.
std::string in_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

bool has_table(SqliteWriter& database, std::string_view name) {
  return !database.text(fmt::format("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{}'", name)).empty();
}

}  // namespace

KernelsLeft look_at_left_kernels(const fs::path& database) {
  KernelsLeft left;
  std::error_code ignored;
  if (!fs::exists(database, ignored)) return left;
  try {
    SqliteWriter writer(database, database);
    writer.run("BEGIN IMMEDIATE; COMMIT;");  // takes back the transaction that was cut
    // Before SQLite, which says of a page that cannot be read now that it is damaged.
    const OpenFile file = open_file(database).or_throw(database.string());
    static_cast<void>(file_xxh3(file, file.size).or_throw(database.string()));
    const std::string found = writer.text("PRAGMA integrity_check(1)");
    if (found != "ok") {
      left.problem = in_one_line(found);
      return left;
    }
    if (writer.text("SELECT 1 FROM sqlite_schema").empty()) return left;  // the first transaction was cut
    writer.prepare("SELECT id, value FROM StringIds");
    writer.prepare("SELECT step, start_ns, end_ns FROM kvroof_step");
    left.has_records = has_table(writer, "META_DATA_EXPORT");
    left.is_usable = true;
  } catch (const DamagedDatabase& error) {
    left.problem = in_one_line(error.reason());
  }
  return left;
}

}  // namespace kvroof
