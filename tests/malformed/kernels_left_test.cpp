// Databases of kernels that a killed recorder left: what is whole is kept, what is damaged is told and set aside, and
// what cannot be written now is not lost.
#include <signal.h>
#include <sys/resource.h>

#include <string>

#include "tests/catch.hpp"
#include "tests/support/in_child.hpp"
#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/kernel_reader.hpp"
#include "traces/kernels_left.hpp"
#include "traces/sqlite.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t kKernels = 2000;
constexpr std::size_t kPage = 4096;

// What a recorder leaves that is killed after all steps but the last two; its profiler's records had reached the file.
void write_left_trace(const fs::path& path) {
  const TraceManifest m = small_manifest();
  TraceWriter writer(path, m, 1);
  ProfileSink& profile = writer.profile();
  for (std::uint32_t step = 0; step + 2 < kSmallSteps; ++step) small_step(writer, m, step);
  for (std::uint32_t i = 1; i <= kKernels; ++i) profile.add(kernel(10 * i, 10 * i + 5, i, "gemm"));
  for (std::uint32_t i = 1; i <= kKernels; ++i) profile.add(OperatorRecord{0, i, 0, 0, "qkv", "weights", 800, 1600});
  profile.flush();
}

// The same, killed between the last name of the database and the seal.
void write_unsealed_trace(const fs::path& path) {
  const TraceManifest m = small_manifest();
  {
    TraceWriter writer(path, m, 1);
    for (std::uint32_t step = 0; step + 2 < kSmallSteps; ++step) small_step(writer, m, step);
    add_small_profile(writer.profile());
    writer.seal();
  }
  fs::remove(path / "seal.json");
}

void check_repaired(const fs::path& trace, std::uint64_t kernels) {
  CHECK(inspect_trace(trace, true).intact);
  CHECK(TraceReader::open(trace).steps().size() == kSmallSteps - 2);
  CHECK(KernelReader::open(trace).counts().kernels == kernels);
  CHECK(query(trace / "kernels.sqlite", "PRAGMA integrity_check") == "ok\n");
}

// The one problem of a repair that set a database aside for its damage.
void check_set_aside(const fs::path& trace, const std::string& name, const std::string& why) {
  const std::string before = slurp(trace / name);
  const TraceReport report = repair_trace(trace);
  CHECK((report.sealed && report.intact));
  REQUIRE(report.problems.size() == 1);
  INFO(report.problems[0]);
  CHECK(report.problems[0].starts_with(name + " is damaged (" + why));
  CHECK(report.problems[0].ends_with("): it was moved into lost/, with the kernels and clock times that it tells of"));
  CHECK(report.problems[0].find('\n') == std::string::npos);
  CHECK(slurp(trace / "lost" / name) == before);
  check_repaired(trace, 0);
}

// Rows that an index lacks.
void make_index_stale(const fs::path& database) {
  const std::string index = "kvroof_operator_of_call";
  SqliteWriter(database, database)
      .run("PRAGMA writable_schema = ON; CREATE TABLE kept AS SELECT * FROM sqlite_schema WHERE name = '" + index +
           "'; DELETE FROM sqlite_schema WHERE name = '" + index + "';");
  SqliteWriter(database, database)
      .run("INSERT INTO kvroof_operator SELECT * FROM kvroof_operator; PRAGMA writable_schema = ON; "
           "INSERT INTO sqlite_schema SELECT * FROM kept;");
}

}  // namespace

TEST_CASE("Records with damaged pages are set aside by a repair, which says so and keeps the rest of the trace") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_left_trace(trace);
  std::string bytes = slurp(trace / "kernels.sqlite.part");
  const std::size_t middle = bytes.size() / kPage / 2 * kPage;
  SECTION("a page of something else") { bytes.replace(middle, kPage, std::string(kPage, '\xff')); }
  SECTION("a page that never reached the disk") { bytes.replace(middle, kPage, std::string(kPage, '\0')); }
  SECTION("pages that are not there") { bytes.resize(middle); }
  write_file(trace / "kernels.sqlite.part", bytes);
  check_set_aside(trace, "kernels.sqlite.part", "");
}

TEST_CASE("An index that lacks rows of its table is damage as well") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_unsealed_trace(trace);
  make_index_stale(trace / "kernels.sqlite");
  check_set_aside(trace, "kernels.sqlite", "row 6 missing from index kvroof_operator_of_call");
}

TEST_CASE("A database of other tables is set aside like a damaged one") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_left_trace(trace);
  fs::remove(trace / "kernels.sqlite.part");
  SECTION("without those of a recording") {
    make_database(trace / "kernels.sqlite.part", "CREATE TABLE other (x);");
    check_set_aside(trace, "kernels.sqlite.part", "no such table: StringIds");
  }
  SECTION("with other columns") {
    make_database(trace / "kernels.sqlite.part", "CREATE TABLE StringIds (id, value); "
                                                 "CREATE TABLE kvroof_step (step, start_ns, end_ns);");
    check_set_aside(trace, "kernels.sqlite.part", "table kvroof_step has 3 columns but 11 values were supplied");
  }
}

TEST_CASE("A profile whose database alone is damaged has nothing to keep, and the damage is told") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_profile_trace(trace);
  fs::remove(trace / "seal.json");
  fs::resize_file(trace / "kernels.sqlite", 2 * kPage);
  const std::string before = slurp(trace / "kernels.sqlite");
  CHECK_THROWS_WITH(repair_trace(trace), Catch::Contains("run.kvt: kernels.sqlite is damaged ("));
  CHECK(slurp(trace / "kernels.sqlite") == before);
  CHECK_FALSE(fs::exists(trace / "lost"));
}

TEST_CASE("A sealed profile whose journal alone is damaged keeps its records") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_profile_trace(trace);
  const std::string kernels = slurp(trace / "kernels.sqlite");
  write_file(trace / "journal.jsonl", "garbage");
  CHECK(repair_trace(trace).intact);
  CHECK(slurp(trace / "kernels.sqlite") == kernels);
}

TEST_CASE("A repair that cannot write now loses nothing: wherever the disk is full, the next one keeps every record") {
  for (const bool staged : {true, false}) {
    bool failed_once = false, came_through = false;
    for (rlim_t limit = 0; !came_through; limit += 16 * kPage) {
      const TemporaryFolder folder;
      const fs::path trace = folder.path() / "run.kvt";
      staged ? write_left_trace(trace) : write_unsealed_trace(trace);
      const int status = in_child([&] {
        signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails like one on a full disk
        const rlimit file_size{limit, limit};
        setrlimit(RLIMIT_FSIZE, &file_size);
        repair_trace(trace);
      });
      INFO((staged ? "staged" : "named") << ", files of at most " << limit << " bytes");
      came_through = status == 0;
      failed_once = failed_once || !came_through;
      if (!came_through) {
        REQUIRE(status == kThrew);
        REQUIRE_FALSE(inspect_trace(trace, true).sealed);
        CHECK(repair_trace(trace).problems.empty());
      }
      check_repaired(trace, staged ? kKernels : 4);
      if (!staged) CHECK(TraceReader::open(trace).steps()[2].start_ns == 1020);
    }
    CHECK(failed_once);
  }
}

TEST_CASE("Records that another program has locked are not damaged: the repair ends, and the next keeps them") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_left_trace(trace);
  {
    SqliteWriter other(trace / "kernels.sqlite.part", trace);
    other.run("BEGIN IMMEDIATE;");
    CHECK_THROWS_WITH(repair_trace(trace), Catch::Contains("kernels.sqlite.part: database is locked"));
    CHECK_FALSE(fs::exists(trace / "lost"));
  }
  CHECK(repair_trace(trace).problems.empty());
  check_repaired(trace, kKernels);
}

TEST_CASE("What a seal disowned is not believed after a repair that was cut short") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_unsealed_trace(trace);
  REQUIRE(repair_trace(trace).intact);
  SqliteWriter(trace / "kernels.sqlite", trace).run("UPDATE kvroof_step SET start_ns = 7;");
  // The first repair ends at a file whose name is taken in lost/ and too long for another.
  const std::string name(255, 'x');
  write_file(trace / "segments" / name, "");
  fs::create_directory(trace / "lost");
  write_file(trace / "lost" / name, "");
  CHECK_THROWS_WITH(repair_trace(trace), Catch::Contains("cannot move"));
  REQUIRE_FALSE(fs::exists(trace / "seal.json"));
  fs::remove(trace / "segments" / name);
  CHECK(repair_trace(trace).intact);
  CHECK(TraceReader::open(trace).steps()[2].start_ns == 0);
}
