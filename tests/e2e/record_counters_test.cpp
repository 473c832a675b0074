// kvroof record --cupti through a made libcupti.so.13 that insists on the real one's order of calls, sizes of blocks
// and zeroed buffers: what it complains of is on stderr. Its device moves 1000 bytes from DRAM and 2000 into it a
// kernel.
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof::test;

#if defined(KVROOF_MADE_CUPTI)

namespace {

const std::string kRun = std::string(" --dtype f16 --model ") + KVROOF_SOURCE_DIR +
                         "/tests/golden/models/llama-gqa --ids \"5 17 9 40 2 30 31 32\" --ids \"7 8 9\" "
                         "--ignore-eos --policy h2o:budget=4 --no-capture ";

// `wishes`: what the made library does (tests/support/made_cuda/made.hpp).
Ran record(const std::string& trace, const std::string& modes, const std::string& wishes = "") {
  const std::string tokens = modes.find("-n ") == std::string::npos ? "-n 4 " : "";
  return run_program("record -o " + trace + kRun + tokens + "--cupti " + modes,
                     "MADE_CUPTI=" + wishes + " KVROOF_EMULATED_CUPTI=1 LD_LIBRARY_PATH=" KVROOF_MADE_CUDA
                     " " KVROOF_EMULATED);
}

std::string ask(const std::string& trace, const std::string& sql) { return query(trace + "/kernels.sqlite", sql); }

std::string note_of(const std::string& trace, const std::string& key) {
  return ask(trace, "SELECT value FROM kvroof_note WHERE key = '" + key + "'");
}

// The first line that the recorder says of CUPTI.
std::string said(const Ran& ran) {
  const std::size_t at = ran.err.find("cupti: ");
  return at == std::string::npos ? "" : ran.err.substr(at, ran.err.find('\n', at) - at);
}

}  // namespace

TEST_CASE("Kernels, counters and samples of three runs through CUPTI's functions are joined by step") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = record(trace, "all");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(ran.err.find("made CUPTI") == std::string::npos);
  CHECK(said(ran) == "cupti: trace, counters, pm");
  CHECK(note_of(trace, "level") == "trace, counters, pm\n");
  CHECK(note_of(trace, "why").empty());
  // Nodes of graphs that callbacks told of explain every kernel of a step, once, though each call has two records.
  constexpr const char* kOf = "o.correlation = k.correlationId AND o.graph_node = coalesce(k.graphNodeId, 0)";
  CHECK(ask(trace, std::string("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE start >= (SELECT min(start_ns) "
                               "FROM kvroof_step) AND (SELECT count(DISTINCT o.step) = 1 AND count(*) = "
                               "count(DISTINCT o.cause) FROM kvroof_operator o WHERE ") + kOf + ") = 0") == "0\n");
  CHECK(ask(trace, "SELECT count(*) > 0 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL") == "1\n");
  CHECK(ask(trace, "SELECT count(*) FROM kvroof_step s WHERE phase = 'decode' AND kv_read_bytes <> (SELECT "
                   "sum(declared_bytes) FROM kvroof_operator o WHERE o.step = s.step AND cause = 'kv_read')") == "0\n");
  // A step's count is that of the kernels that the first run saw in it; a sample lies in the step of its kernel.
  for (const auto& [metric, bytes] : {std::pair("read", 1000), std::pair("write", 2000)}) {
    CHECK(ask(trace, fmt::format("SELECT count(*) FROM kvroof_step s WHERE (SELECT value FROM kvroof_counter WHERE "
                                 "name = 'dram__bytes_{}.sum' AND steps = 1 AND first_step = s.step) <> {} * (SELECT "
                                 "count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE k.start BETWEEN s.start_ns AND "
                                 "s.end_ns)", metric, bytes)) == "0\n");
  }
  CHECK(ask(trace, "SELECT count(*) = (SELECT count(*) FROM kvroof_step) FROM kvroof_counter WHERE steps = 1 AND "
                   "name = 'dram__bytes_read.sum'") == "1\n");
  CHECK(ask(trace, "SELECT count(*) > 20, min(value), max(value) FROM kvroof_counter WHERE steps = 0") ==
        "1|1000.0|1000.0\n");
  CHECK(ask(trace, "SELECT count(*) FROM kvroof_counter WHERE steps = 0 AND NOT EXISTS (SELECT 1 FROM kvroof_step "
                   "WHERE time_ns BETWEEN start_ns AND end_ns)") == "0\n");
  const Ran report = run_program("report-kernels " + trace + " -q --format json");
  REQUIRE(report.code == 0);
  const auto steps = nlohmann::json::parse(report.out)["steps"];
  for (const auto& row : steps) {
    CHECK(row["counted_bytes"].get<double>() == 3000 * row["kernels"].get<double>());
    CHECK(row["counted_ratio"].get<double>() > 0);
  }
  // Operators have the declared bytes; the report says what the counters make of them all.
  const std::string totals = ask(trace, "SELECT printf('counted: DRAM moved %.6g MB in %d steps, ', sum(value) / 1e6, "
                                        "count(DISTINCT first_step)) FROM kvroof_counter WHERE steps = 1 AND name IN "
                                        "('dram__bytes_read.sum', 'dram__bytes_write.sum')");
  const Ran said_of = run_program("report-kernels " + trace);
  CHECK(said_of.err.find(totals.substr(0, totals.size() - 1)) != std::string::npos);
  CHECK(run_program("report-kernels " + trace + " --by step").err.find("counted: ") == std::string::npos);
  // A timeline shows DRAM's throughput: each sample moved 1000 bytes in 1000 ns.
  REQUIRE(run_program("export chrome " + trace + " -o " + folder.file("run.json")).code == 0);
  std::size_t samples = 0;
  const auto events = nlohmann::json::parse(std::ifstream(folder.file("run.json")))["traceEvents"];
  for (const auto& event : events) {
    if (event["name"] != "GPU 0 dram__bytes_read.sum.per_second (GB/s)") continue;
    CHECK(event["args"]["value"].get<double>() == 1.0);
    ++samples;
  }
  CHECK(ask(trace, "SELECT count(*) FROM kvroof_counter WHERE steps = 0 AND name = 'dram__bytes_read.sum'") ==
        std::to_string(samples) + "\n");
}

TEST_CASE("The host library of a CUPTI whose folder the loader does not know is loaded from beside it") {
  const TemporaryFolder folder;
  const Ran ran = record(folder.file("run.kvt"), "counters", "package=1");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(said(ran) == "cupti: counters");
}

TEST_CASE("Whatever keeps CUPTI from watching, the run is recorded, with the level that was reached and why not more") {
  constexpr const char* kCounters = "counters need root or CAP_PERFMON: `kvroof doctor` says more";
  const std::string refused = std::string("CUPTI, asking which counters are free: made (35); ") + kCounters;
  const std::string twice =
      "this device reads dram__bytes_read.sum and dram__bytes_write.sum together in 2 passes, and a decode step can "
      "run only once";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"cuptiProfilerGetCounterAvailability=35,cuptiPmSamplingGetCounterAvailability=35",
       "trace; counters: " + refused + "; pm: " + refused},
      {"subscriber=1", "counters, pm; trace: another profiler holds CUPTI in this process: CUPTI for another"},
      {"cuptiSubscribe_v2=999,cuptiProfilerInitialize=999",
       "none; trace: CUPTI finds no NVIDIA driver or no device; counters: CUPTI, starting the profiler: made (999); "
       "pm: CUPTI, starting the profiler: made (999)"},
      {"cuptiProfilerDeviceSupported=0", "trace; counters: the device cannot be counted: confidential computing; pm: "
                                         "the device cannot be counted: confidential computing"},
      {"passes=2", "trace; counters: " + twice + "; pm: " + twice},
      {"cuptiRangeProfilerStart=26,overflow=1",
       "trace; counters: CUPTI, starting to count: made (26); another profiler or a monitor such as DCGM holds the "
       "counters; pm: the device's buffer of 536870912 bytes overflowed: samples were lost"},
      {"dropped_ranges=1", "trace, pm; counters: CUPTI dropped 1 ranges"},
      {"silent_loss=1", "trace, counters, pm; counting ended early: CUPTI gave back 4 of 5 ranges"},
      {"still=1", "trace; counters: the device counted nothing: every value is 0; pm: the device counted nothing: "
                  "every value is 0"},
      {"cuptiRangeProfilerPushRange=999,cuptiPmSamplingDecodeData=8",
       "trace; counters: CUPTI, beginning a range: made (999); pm: CUPTI, decoding samples: made (8)"},
      {"own_clock=1,refuse_kind=20", "trace, counters, pm"},
      {"nvml=9,refuse_kind=20", "trace, counters, pm"},
      {"overflow_after=9", "trace, counters, pm; counting ended early: the device's buffer of 536870912 bytes "
                           "overflowed: samples were lost"},
      {"lost=3", "trace, counters, pm; 3 records were dropped"}};
  const TemporaryFolder folder;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [wishes, expected] = cases[i];
    INFO(wishes);
    const std::string trace = folder.file(std::to_string(i) + ".kvt");
    const Ran ran = record(trace, "all", wishes);
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK(ran.err.find("made CUPTI") == std::string::npos);
    CHECK(said(ran) == "cupti: " + expected);
    const std::string level = expected.substr(0, expected.find(';'));
    CHECK(note_of(trace, "level") == level + "\n");
    CHECK(run_program("inspect " + trace + " --verify").code == 0);
    CHECK(note_of(trace, "not_recorded") ==
          (wishes.starts_with("nvml=9") ? "clocks and power (CUPTI: made (14); NVML, starting: made (9))\n" : ""));
    // What CUPTI refuses NVML tells: when the recording begins, and at its end.
    const bool by_nvml = wishes.starts_with("own_clock=1");
    CHECK(note_of(trace, "clocks_by") == (by_nvml ? "NVML, every 100 ms\n" : ""));
    if (by_nvml) {
      CHECK(ask(trace, "SELECT count(*) >= 2, min(sm_clock_mhz), max(memory_clock_mhz), max(power_mw) - "
                       "min(power_mw) >= 1000, count(temperature_c) FROM kvroof_environment") == "1|1980|3201|1|0\n");
      CHECK(ask(trace, "SELECT max(time_ns) > (SELECT max(start_ns) FROM kvroof_step) FROM kvroof_environment") ==
            "1\n");
    }
    CHECK((note_of(trace, "dropped") == "3\n") == (wishes == "lost=3"));
  }
}

TEST_CASE("Kernels whose node CUPTI did not tell of, or whose launch it gave no id, are counted and said") {
  const TemporaryFolder folder;
  for (const auto& [wish, counted, why] :
       {std::tuple("other_nodes=1", "graphNodeId IS NOT NULL", "named nodes of graphs that it had not told of"),
        std::tuple("no_ids=1", "1", "gave no ids of launches")}) {
    INFO(wish);
    const std::string trace = folder.file(std::string(wish) + ".kvt");
    const Ran ran = record(trace, "trace", wish);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    const std::string kernels = std::string("FROM CUPTI_ACTIVITY_KIND_KERNEL");
    CHECK(said(ran) + "\n" ==
          ask(trace, fmt::format("SELECT printf('cupti: trace; %d of %d kernels have no operator: CUPTI {}', sum({}), "
                                 "count(*)) {}", why, counted, kernels)));
    CHECK(note_of(trace, "kernels_unexplained") == ask(trace, std::string("SELECT sum(") + counted + ") " + kernels));
    CHECK(run_program("report-kernels " + trace).err.find("kernels_unexplained: ") != std::string::npos);
  }
}

TEST_CASE("Buffers that a later CUPTI does not step through are read by the sizes that are known") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = record(trace, "trace", "version=130999");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(said(ran) == "cupti: trace");
  CHECK(ask(trace, "SELECT count(*) > 0 FROM CUPTI_ACTIVITY_KIND_KERNEL") == "1\n");
}

TEST_CASE("Samples by a clock of the device begin when sampling began, and the trace says so") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = record(trace, "pm", "device_clock=1");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(note_of(trace, "samples_clock").find("the device's own") != std::string::npos);
  CHECK(ask(trace, "SELECT count(*) > 0, max(abs(time_ns - (SELECT min(start_ns) FROM kvroof_step))) < 60000000000 "
                   "FROM kvroof_counter WHERE steps = 0") == "1|1\n");
  REQUIRE(record(folder.file("host.kvt"), "pm", "own_clock=1").code == 0);
  CHECK(note_of(folder.file("host.kvt"), "samples_clock").empty());
}

TEST_CASE("Samples before one that cannot be read are in the trace, which says how many were dropped") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = record(trace, "pm", "bad_sample=12");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(said(ran).starts_with("cupti: pm; counting ended early: CUPTI, decoding a sample: made (999); "));
  CHECK(note_of(trace, "level") == "pm\n");
  CHECK(std::stoi(note_of(trace, "samples_dropped")) > 0);
  // The first of all is left out.
  CHECK(ask(trace, "SELECT count(*) FROM kvroof_counter WHERE steps = 0 AND name = 'dram__bytes_read.sum'") == "10\n");
}

TEST_CASE("A value that is no number is left out and counted, the others of its range stand") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = record(trace, "counters", "nan=1");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(said(ran) == "cupti: counters");
  CHECK(ask(trace, "SELECT count(*) FROM kvroof_counter WHERE name = 'dram__bytes_write.sum'") == "0\n");
  const std::string counted = ask(trace, "SELECT count(*) FROM kvroof_counter WHERE name = 'dram__bytes_read.sum'");
  CHECK(counted == ask(trace, "SELECT count(*) FROM kvroof_step"));
  CHECK(note_of(trace, "values_not_numbers") == counted);
  CHECK(run_program("report-kernels " + trace).code == 0);
}

TEST_CASE("Operators are counted one by one, the device idle around each, and stand beside their declared bytes") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = record(trace, "all --ranges operator", "idle=1");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(ran.err.find("made CUPTI") == std::string::npos);
  CHECK(said(ran) == "cupti: trace, counters, pm");
  CHECK(note_of(trace, "counted_ranges") == "operator: each launch by itself, without CUDA graphs\n");
  // The kernels' run had graphs; each of its launches was counted in the other one, in the same step and layer, with
  // the same declared bytes: one kernel reads 1000 bytes.
  constexpr const char* kLaunches =
      "SELECT step, layer, name, sum(declared_bytes), 1000.0 * count(DISTINCT correlation || '/' || graph_node) FROM "
      "kvroof_operator GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
  constexpr const char* kCounted =
      "SELECT first_step, layer, operator, sum(declared_bytes), sum(value) FROM kvroof_counter WHERE steps = 1 AND "
      "name = 'dram__bytes_read.sum' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
  CHECK(ask(trace, "SELECT count(*) > 0 FROM kvroof_operator WHERE graph_node > 0") == "1\n");
  CHECK(ask(trace, kCounted) == ask(trace, kLaunches));
  const Ran report = run_program("report-kernels " + trace + " --format json");
  REQUIRE(report.code == 0);
  CHECK(report.err.find("each operator was launched and counted by itself") != std::string::npos);
  std::size_t operators = 0;
  const auto rows = nlohmann::json::parse(report.out)["operators"];
  for (const auto& row : rows) {
    if (row["kind"] != "operator") continue;
    INFO(row.dump());
    CHECK(row["counted_bytes"].get<double>() == 3000 * row["calls"].get<double>());
    CHECK(row["total_ns"].get<double>() > 0);
    if (row["bytes"].is_null()) continue;
    const double ratio = row["counted_bytes"].get<double>() / row["bytes"].get<double>();
    CHECK(row["counted_ratio"].get<double>() == Approx(ratio).epsilon(1e-6));
    ++operators;
  }
  CHECK(operators >= 5);
}

TEST_CASE("Counted operators alone have a report, of more ranges than CUPTI holds at once") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), steps = folder.file("steps.kvt");
  const Ran ran = record(trace, "counters --ranges operator -n 75", "idle=1");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(said(ran) == "cupti: counters");
  constexpr const char* kRead = "FROM kvroof_counter WHERE name = 'dram__bytes_read.sum'";
  CHECK(ask(trace, std::string("SELECT count(*) > 1024, count(operator) = count(*) ") + kRead) == "1|1\n");
  // Whole steps: what operators read is what the steps' own ranges would have counted, step by step.
  REQUIRE(record(steps, "counters -n 75").code == 0);
  CHECK(note_of(steps, "counted_ranges") == "step\n");
  CHECK(ask(steps, std::string("SELECT count(operator), count(declared_bytes) ") + kRead) == "0|0\n");
  const std::string by_step = std::string("SELECT first_step, sum(value) ") + kRead + " GROUP BY 1 ORDER BY 1";
  CHECK(ask(trace, by_step) == ask(steps, by_step));
  CHECK(note_of(trace, "ranges_of_window").empty());
  // The same counts where CUPTI takes smaller windows alone.
  const std::string small = folder.file("small.kvt");
  REQUIRE(record(small, "counters --ranges operator -n 75", "configured_ranges=100").code == 0);
  CHECK(note_of(small, "ranges_of_window") == "64\n");
  CHECK(ask(small, by_step) == ask(trace, by_step));
  const Ran report = run_program("report-kernels " + trace + " --format csv");
  CHECK(report.code == 0);
  const Ran table = run_program("report-kernels " + trace);  // which has no column without a word
  CHECK(table.out.find("calls") == std::string::npos);
  CHECK(table.out.find("declared") != std::string::npos);
  CHECK(report.out.find("\nattention,operator,") != std::string::npos);
  CHECK(run_program("report-kernels " + steps + " --format csv").out.starts_with("kernels,level,why\n0,counters,"));
}

TEST_CASE("What goes wrong while operators are counted ends the counting with a reason, and not the run") {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"cuptiRangeProfilerPushRange=999", "none; counters: CUPTI, beginning a range: made (999)"},
      {"cuptiRangeProfilerPopRange=999", "none; counters: CUPTI, ending a range: made (999)"},
      {"dropped_ranges=1", "none; counters: CUPTI dropped 1 ranges"},
      {"cuCtxSynchronize=700", "none; counters: waiting for the device: the driver answers 700"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [wishes, expected] = cases[i];
    INFO(wishes);
    const std::string trace = folder.file(std::to_string(i) + ".kvt");
    const Ran ran = record(trace, "counters --ranges operator", wishes);
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK(said(ran) == "cupti: " + expected);
    CHECK(run_program("report-kernels " + trace + " --format csv").out.starts_with("kernels,level,why\n0,none,"));
  }
  const Ran without = record(folder.file("no.kvt"), "trace --ranges operator");
  CHECK(without.code == 2);
  CHECK(without.err.find("--ranges operator with --cupti trace") != std::string::npos);
  CHECK(record(folder.file("no.kvt"), "counters --ranges layer").err.find("expected step or operator") !=
        std::string::npos);
}

TEST_CASE("A buffer that comes back before its last record is whole loses that record, which is counted") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = record(trace, "trace", "cut=1");
  INFO(ran.err);
  CHECK(ran.code == 0);
  CHECK(note_of(trace, "records_cut") == "1\n");
  CHECK(std::stoi(note_of(trace, "bytes_lost")) > 0);
}

TEST_CASE("An interrupted recording ends with 130, sealed, with the kernels so far, and is not repeated") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  // By a shell: a run with room for many steps, interrupted once it has begun to record.
  const std::string program = "KVROOF_EMULATED_CUPTI=1 LD_LIBRARY_PATH=" KVROOF_MADE_CUDA " " KVROOF_EMULATED
                              " record -o " + trace + kRun + " -n 50 --cupti all & run=$!; "
                              "while [ ! -e " + trace + "/kernels.sqlite.part ]; do sleep 0.1; done; sleep 0.5; "
                              "kill -INT $run; wait $run";
  std::ofstream(folder.path() / "run.sh") << program;
  const Ran ran = run_program(folder.file("run.sh"), "bash");
  INFO(ran.err);
  CHECK(ran.code == 130);
  CHECK(ran.err.find("made CUPTI") == std::string::npos);
  CHECK(said(ran) == "cupti: trace; counters: the recorded run did not come to its end; pm: the recorded run did not "
                     "come to its end");
  CHECK(std::stoi(ask(trace, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")) > 0);
  CHECK(run_program("inspect " + trace + " --verify").code == 0);
}

#else

TEST_CASE("CUPTI's functions are called as its header asks") { std::puts("SKIPPED: built without CUPTI's headers"); }

#endif
