// Recorders that are killed or run out of disk: what they leave is known to be incomplete, and repair keeps what is
// intact.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "tests/catch.hpp"
#include "tests/support/in_child.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

// Every row of a repaired small trace is what was recorded.
void check_prefix(const fs::path& trace) {
  const TraceReader reader = TraceReader::open(trace);
  const TraceManifest m = small_manifest();
  for (const TraceSequence& sequence : reader.manifest().sequences) {
    for (std::uint32_t l = 0; l < m.layers.size(); ++l) {
      const std::uint64_t k_row = std::uint64_t{m.layers[l].kv_heads} * m.layers[l].k_width * 2;
      CHECK(reader.keys_values(sequence.id, LayerId(l)).k ==
            row_content(sequence.id, l, 'k', 0, sequence.tokens, k_row));
    }
  }
  CHECK_NOTHROW(everything(reader));
}

// An unsealed trace is refused with exit code 4 and the number of intact steps; returns that number.
std::uint32_t check_refused(const fs::path& trace) {
  const TraceReport report = inspect_trace(trace, true);
  CHECK_FALSE(report.sealed);
  try {
    TraceReader::open(trace);
    FAIL("an unsealed trace was opened");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kDamagedTrace);
    CHECK(std::string(e.what()).ends_with("; " + report.intact_text()));
  }
  return report.intact_steps;
}

}  // namespace

TEST_CASE("Killed recorder: after any step, the trace is refused, and repair keeps the segments that were sealed") {
  for (std::uint32_t steps = 0; steps <= kSmallSteps; ++steps) {
    TemporaryFolder folder;
    const fs::path trace = folder.path() / "run.kvt";
    const int status = in_child([&] {
      const TraceManifest m = small_manifest();
      TraceWriter writer(trace, m, 512);
      for (std::uint32_t step = 0; step < steps; ++step) small_step(writer, m, step);
      kill(getpid(), SIGKILL);
    });
    REQUIRE(status == 128 + SIGKILL);
    INFO("killed after " << steps << " steps");
    const std::uint32_t intact = check_refused(trace);
    // Segments end with steps 0, 2 and 5.
    CHECK(intact == (steps == 0 ? 0 : steps < 3 ? 1 : steps < 6 ? 3 : 6));
    if (intact == 0) {
      CHECK_THROWS_AS(repair_trace(trace), Error);
      continue;
    }
    const TraceReport repaired = repair_trace(trace);
    CHECK((repaired.sealed && repaired.intact));
    CHECK(repaired.intact_steps == intact);
    // All rows that were requested are there after steps 5 and 2.
    const TraceManifest manifest = TraceReader::open(trace).manifest();
    CHECK(manifest.sequences[0].stop_reason == (intact == 6 ? "length" : "interrupted"));
    CHECK(manifest.sequences[1].stop_reason == (intact >= 3 ? "length" : "interrupted"));
    CHECK(manifest.host == "here");
    check_prefix(trace);
    CHECK_FALSE(has_part_file(trace / "segments"));
  }
}

TEST_CASE("Killed recorder: at any moment, no more than the open segment is lost, and the rest is what was recorded") {
  for (int moment = 0; moment < 40; ++moment) {
    TemporaryFolder folder;
    const fs::path trace = folder.path() / "run.kvt";
    std::array<int, 2> steps_pipe{};
    REQUIRE(pipe(steps_pipe.data()) == 0);
    const pid_t child = fork();
    if (child == 0) {
      // Every step closes a segment, and is told as soon as the recorder lets the engine go on.
      const TraceManifest m = small_manifest();
      TraceWriter writer(trace, m, 1);
      for (std::uint32_t step = 0; step < kSmallSteps; ++step) {
        small_step(writer, m, step);
        if (write(steps_pipe[1], ".", 1) != 1) _exit(1);
      }
      for (const TraceSequence& sequence : m.sequences) writer.set_stop_reason(sequence.id, "length");
      writer.seal();
      _exit(0);
    }
    close(steps_pipe[1]);
    usleep(static_cast<useconds_t>(300 * moment));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    std::array<char, kSmallSteps> told{};
    const auto closed = static_cast<std::uint32_t>(read(steps_pipe[0], told.data(), told.size()));
    close(steps_pipe[0]);
    if (!fs::exists(trace)) continue;
    const TraceReport report = inspect_trace(trace, true);
    INFO("moment " << moment << ", " << closed << " steps closed");
    CHECK(report.intact_steps >= closed);
    CHECK(report.intact_steps <= closed + 1);
    if (report.sealed) {
      CHECK(report.intact);
      CHECK(report.intact_steps == kSmallSteps);
      check_prefix(trace);
    } else if (check_refused(trace) > 0) {
      CHECK(repair_trace(trace).intact_steps == report.intact_steps);
      check_prefix(trace);
    }
  }
}

TEST_CASE("Full disk: wherever the space ends, recording fails with an error and nothing is taken for complete") {
  bool failed_once = false;
  for (rlim_t limit = 0; limit <= 20000; limit += limit < 4000 ? 100 : 1000) {
    TemporaryFolder folder;
    const fs::path trace = folder.path() / "run.kvt";
    const int status = in_child([&] {
      signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails like one on a full disk
      const rlimit file_size{limit, limit};
      setrlimit(RLIMIT_FSIZE, &file_size);
      write_small_trace(trace);
    });
    INFO("files of at most " << limit << " bytes");
    if (status == 0) {
      CHECK(inspect_trace(trace, true).intact);
      continue;
    }
    failed_once = true;
    REQUIRE(status == kThrew);
    CHECK_FALSE(has_part_file(trace));
    if (!fs::exists(trace)) continue;  // there was not even room for the manifest
    if (check_refused(trace) > 0) {
      CHECK(repair_trace(trace).sealed);
      check_prefix(trace);
    }
  }
  CHECK(failed_once);
}

TEST_CASE("Full disk: a recorder that failed once can never seal") {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  const TraceManifest m = small_manifest();
  TraceWriter writer(trace, m, 1);
  fs::remove_all(trace / "segments");
  CHECK_THROWS_AS(small_step(writer, m, 0), Error);
  CHECK_THROWS_AS(small_step(writer, m, 1), std::logic_error);
  CHECK_THROWS_AS(writer.seal(), std::logic_error);
  CHECK_FALSE(inspect_trace(trace, true).sealed);
}

TEST_CASE("A sequence that left the batch before the recorder was killed lost nothing, and repair says no else") {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  TraceManifest m = small_manifest();
  m.sequences[1].requested_new_tokens = 6;  // an end of text came before
  {
    TraceWriter writer(trace, m, 512);
    for (std::uint32_t step = 0; step < kSmallSteps; ++step) small_step(writer, m, step);
  }
  REQUIRE(repair_trace(trace).intact_steps == kSmallSteps);
  CHECK(TraceReader::open(trace).manifest().sequences[1].stop_reason == "unknown");
  CHECK(TraceReader::open(trace).manifest().sequences[1].tokens == 4);
}

TEST_CASE("Repair sets damaged and later segments aside and changes nothing else") {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_small_trace(trace);
  const std::string first = slurp(trace / "segments/00000.safetensors");
  std::string second = slurp(trace / "segments/00001.safetensors");
  second[second.size() / 2] = static_cast<char>(second[second.size() / 2] ^ 4);
  write_file(trace / "segments/00001.safetensors", second);
  const std::string manifest = slurp(trace / "manifest.json");
  const TraceReport report = repair_trace(trace);
  CHECK((report.sealed && report.intact));
  CHECK(report.intact_steps == 1);
  CHECK(slurp(trace / "lost/manifest.json") == manifest);  // which says how the run ended, were the segments found
  CHECK(slurp(trace / "segments/00000.safetensors") == first);
  CHECK(slurp(trace / "lost/00001.safetensors") == second);
  CHECK(fs::exists(trace / "lost/00002.safetensors"));
  CHECK(fs::exists(trace / "lost/kernels.sqlite"));
  const TraceReader reader = TraceReader::open(trace);
  CHECK(reader.manifest().sequences[0].tokens == 3);
  CHECK(reader.manifest().sequences[0].stop_reason == "interrupted");
  CHECK(reader.manifest().sequences[1].stop_reason == "interrupted");
  CHECK(reader.manifest().command_line == "kvroof record");
  CHECK(reader.steps().size() == 1);
  CHECK(reader.steps()[0].start_ns == 0);
  CHECK(reader.steps()[0].bytes[Cause::kKvRead] == 1000);
  check_prefix(trace);
}

TEST_CASE("Repair leaves an intact trace alone, and repairing twice is repairing once") {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_small_trace(trace);
  const std::string seal = slurp(trace / "seal.json");
  CHECK(repair_trace(trace).intact);
  CHECK(slurp(trace / "seal.json") == seal);
  CHECK_FALSE(fs::exists(trace / "lost"));
  fs::remove(trace / "seal.json");
  const std::string expected_manifest = slurp(trace / "manifest.json");
  CHECK(repair_trace(trace).intact_steps == kSmallSteps);
  CHECK(slurp(trace / "manifest.json") == expected_manifest);  // whole already: stop reasons are kept
  const std::string resealed = slurp(trace / "seal.json");
  CHECK(repair_trace(trace).intact);
  CHECK(slurp(trace / "seal.json") == resealed);
}

TEST_CASE("Repair makes manifest and journal again from the segments when both are gone") {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_small_trace(trace);
  const std::string journal = slurp(trace / "journal.jsonl");
  for (const char* name : {"manifest.json", "journal.jsonl", "seal.json", "kernels.sqlite"}) fs::remove(trace / name);
  CHECK(check_refused(trace) == kSmallSteps);
  CHECK(repair_trace(trace).intact_steps == kSmallSteps);
  CHECK(slurp(trace / "journal.jsonl") == journal);
  const TraceReader reader = TraceReader::open(trace);
  CHECK(reader.manifest().layers[1].scale == 0.5F);
  CHECK(reader.manifest().model_name == "small");
  CHECK(reader.manifest().host.empty());
  CHECK(reader.manifest().sequences[0].tokens == 8);
  check_prefix(trace);
}

TEST_CASE("Repair lists a segment whose line the journal lacks or holds in part") {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_small_trace(trace);
  const std::string journal = slurp(trace / "journal.jsonl");
  const std::size_t last_line = journal.rfind('\n', journal.size() - 2) + 1;
  for (const std::size_t kept : {last_line, last_line + 10, journal.size() - 1}) {
    fs::remove(trace / "seal.json");
    write_file(trace / "journal.jsonl", journal.substr(0, kept));
    CHECK(check_refused(trace) == kSmallSteps);
    CHECK(repair_trace(trace).intact_steps == kSmallSteps);
    CHECK(slurp(trace / "journal.jsonl") == journal);
    check_prefix(trace);
  }
}

TEST_CASE("Without a seal a segment vouches for itself, with the journal and without it") {
  for (const bool with_journal : {true, false}) {
    TemporaryFolder folder;
    const fs::path trace = folder.path() / "run.kvt";
    write_small_trace(trace);
    fs::remove(trace / "seal.json");
    if (!with_journal) fs::remove(trace / "journal.jsonl");
    const fs::path segment = trace / "segments/00001.safetensors";
    const std::string whole = slurp(segment);
    for (std::size_t at = 0; at < whole.size(); at += 5) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
      write_file(segment, damaged);
      if (inspect_trace(trace, false).intact_steps != 1) FAIL("byte " << at << " is not missed");
    }
    write_file(segment, whole);
    CHECK(inspect_trace(trace, false).intact_steps == kSmallSteps);
  }
}

TEST_CASE("Repair does not believe a changed manifest that nothing vouches for") {
  TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  write_small_trace(trace);
  fs::remove(trace / "seal.json");
  std::string manifest = slurp(trace / "manifest.json");
  manifest.replace(manifest.find("\"scale\": 0.5"), 12, "\"scale\": 0.7");
  write_file(trace / "manifest.json", manifest);
  CHECK(repair_trace(trace).intact_steps == kSmallSteps);
  CHECK(TraceReader::open(trace).manifest().layers[0].scale == 0.5F);
  CHECK(slurp(trace / "lost/manifest.json") == manifest);  // nothing is deleted
}

TEST_CASE("Repair: one damaged file of any kind costs at most the segments from the damage on") {
  for (const char* name : {"manifest.json", "journal.jsonl", "seal.json", "kernels.sqlite"}) {
    TemporaryFolder folder;
    const fs::path trace = folder.path() / "run.kvt";
    write_small_trace(trace);
    const std::string whole = slurp(trace / name);
    for (const std::string& damaged : {std::string("garbage"), whole.substr(0, whole.size() / 2), whole + whole}) {
      write_file(trace / name, damaged);
      INFO(name << " of " << damaged.size() << " bytes");
      CHECK_FALSE(inspect_trace(trace, true).intact);
      const TraceReport report = repair_trace(trace);
      CHECK((report.sealed && report.intact));
      CHECK(report.intact_steps == kSmallSteps);
      check_prefix(trace);
    }
  }
}
