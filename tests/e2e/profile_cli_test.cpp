#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// Whatever a recording says: programs read them by place.
const std::string kOperatorColumns =
    "name,kind,calls,total_ns,share_percent,mean_ns,median_ns,deviation_ns,min_ns,max_ns,bytes,counted_bytes,"
    "counted_ratio,bytes_per_second,limit_percent,flops_per_byte,roof_percent\n";

}  // namespace

TEST_CASE("inspect says what a trace of a profiler's records alone holds, and replay refuses it in one sentence") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  write_profile_trace(trace);
  const Ran ran = run_program("inspect " + trace);
  CHECK(ran.code == 0);
  CHECK(ran.out.find("none: a profiler's records alone") != std::string::npos);
  CHECK(ran.out.find("NVIDIA H200") != std::string::npos);
  CHECK(ran.out.find("4 kernels, 1 copies and fills, 4 calls, 2 ranges in 0.0016 ms") != std::string::npos);
  const auto profile = nlohmann::json::parse(run_program("inspect " + trace + " --format json").out)["profile"];
  CHECK(profile["notes"].dump() == R"({"level":"trace"})");
  const nlohmann::json counts = {{"kernels", 4},     {"copies", 1},    {"fills", 0},    {"calls", 4},    {"ranges", 2},
                                 {"allocations", 1}, {"operators", 5}, {"counters", 2}, {"processes", 1}};
  CHECK(profile["counts"] == counts);
  CHECK((profile["first_ns"] == 1000 && profile["last_ns"] == 2600));
  const std::vector<std::string> verbs = {"replay " + trace + " --policy full",
                                          "analyze " + trace + " -o " + folder.file("a")};
  for (const std::string& verb : verbs) {
    const Ran refused = run_program(verb);
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.err.starts_with("error: " + trace +
                                  " holds a profiler's records alone, no queries, keys and values\n"));
  }
}

TEST_CASE("report-kernels sets each operator against the limit of the recorded device") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  write_profile_trace(trace);
  const Ran table = run_program("report-kernels " + trace);
  CHECK(table.code == 0);
  CHECK(table.err == "limit: 4800 GB/s, h200 (datasheet)\n");
  for (const char* line : {"qkv", "attention", "all kernels", "policy: scores and compaction", "copy device to host",
                           "idle between work"}) {
    INFO(table.out);
    CHECK(table.out.find(line) != std::string::npos);
  }
  CHECK(table.out.find("median") == std::string::npos);  // no room beside the bytes
  const Ran csv = run_program("report-kernels " + trace + " --format csv --top 1");
  // 700 of 1600 ns; 1600 bytes in 700 ns are 2.29 GB/s of 4800; 3200 flops.
  CHECK(csv.out.starts_with(kOperatorColumns + "qkv,operator,2,700,43.75,350,350,71,300,400,1600,,,2285714285.71"));
  CHECK(csv.out.find("\n1 more,operator,2,500,31.25,250,250,71,200,300,1000,,,2000000000") != std::string::npos);
  CHECK(csv.out.find("\npolicy: scores and compaction,policy,,125,7.8125,") != std::string::npos);
  CHECK(csv.out.find("\nidle between work,idle,3,300,18.75,100,,,,100,") != std::string::npos);
  const Ran steps = run_program("report-kernels " + trace + " --by step --format csv");
  // DRAM reads alone were counted: they have no ratio to bytes read and written.
  CHECK(steps.out ==
        "steps,kernels,total_ns,weights_ns,kv_ns,policy_ns,activations_ns,declared_bytes,counted_bytes,"
        "counted_ratio\n0,3,900,700,150,50,0,2000,1200,\n1,1,300,0,225,75,0,600,,\n");
  const Ran json = run_program("report-kernels " + trace + " --format json --device a100-80g");
  CHECK(json.out.find("\"device\": \"a100-80g\"") != std::string::npos);
  CHECK(json.out.find("\"elapsed_ns\": 1600") != std::string::npos);
  const Ran wrong = run_program("report-kernels " + trace + " --by layer");
  CHECK(wrong.code == 2);
  CHECK(wrong.err == "error: --by layer: expected operator, purpose, step or range\n");
}

TEST_CASE("report-kernels by range says what each range of a program launched, and what none did") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  write_profile_trace(trace);
  // Steps of two kernels each, of 1600 ns in all; the copy was launched between them.
  CHECK(run_program("report-kernels " + trace + " -q --by range --format csv").out ==
        "name,ranges,kernels,copies,total_ns,share_percent,own_ns,mean_ns,mean_span_ns\n"
        "step 0,1,2,0,600,37.5,600,600,700\nstep 1,1,2,0,600,37.5,600,600,600\n"
        "outside of ranges,,0,1,100,6.25,,,\nall work,,4,1,1300,81.25,,,\n");
  CHECK(run_program("report-kernels " + trace + " -q --by range --format csv --top 1").out.find(
            "\n1 more,1,,,,,600,,\n") != std::string::npos);
  const auto json = nlohmann::json::parse(run_program("report-kernels " + trace + " --by range --format json").out);
  REQUIRE(json["ranges"].size() == 4);
  CHECK(json["ranges"][1]["name"] == "step 1");
  CHECK(json["ranges"][1]["mean_span_ns"] == 600);
  CHECK_FALSE(nlohmann::json::parse(run_program("report-kernels " + trace + " --format json").out).contains("ranges"));
  TraceWriter writer(folder.path() / "bare.kvt", profile_manifest());
  writer.profile().add(kernel(1000, 1400, 10, "gemm"));
  writer.seal();
  const Ran bare = run_program("report-kernels " + folder.file("bare.kvt") + " --by range");
  CHECK(bare.code == 2);
  CHECK(bare.err.starts_with("error: " + folder.file("bare.kvt") + " has no ranges of the application\n"));
}

TEST_CASE("report-kernels draws the roofline of the operators that declared operations, and names the others") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), svg = folder.file("roofline.svg");
  write_profile_trace(trace);
  const Ran ran = run_program("report-kernels " + trace + "/ --svg " + svg);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(ran.out.find("qkv") != std::string::npos);
  CHECK(ran.err.find("picture: without declared operations, 41.7 % of the kernels' time, and left out: attention\n") !=
        std::string::npos);
  const std::string picture = slurp(svg);
  CHECK(picture.find(">run.kvt against the roof of h200 (datasheet)</text>") != std::string::npos);
  // qkv: 2 flop/byte on an axis of 11 octaves from 0.5 (all kernels have 1.23, half of which it shows); 3200 operations
  // in 700 ns on one of 6 decades from 1 Gflop/s.
  CHECK(picture.find("cx=\"166.4\" cy=\"377.7\"") != std::string::npos);
  const std::string other = folder.file("other.kvt"), none = folder.file("none.svg");
  REQUIRE(run_program("import nsys " + trace + "/kernels.sqlite -o " + other).code == 0);
  const std::vector<std::pair<std::string, std::string>> refusals = {
      {trace + " --svg " + folder.file("none.png"), "a name that ends with .svg"},
      {other + " --svg " + none, "has declared operations, so none has a place in the picture"}};
  for (const auto& [words, why] : refusals) {
    const Ran refused = run_program("report-kernels " + words);
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(refused.err.find(why) != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(none));
}

TEST_CASE("A profile of another program is imported and reported by kernel") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  write_profile_trace(folder.file("ours.kvt"));
  const Ran imported = run_program("import nsys " + folder.file("ours.kvt/kernels.sqlite") + " -o " + trace);
  CHECK(imported.code == 0);
  CHECK(imported.err.find("4 kernels, 1 copies and fills, 4 calls, 2 ranges") != std::string::npos);
  const Ran csv = run_program("report-kernels " + trace + " --format csv");
  CHECK(csv.err.find("times alone: the recording does not say what a kernel reads and writes") != std::string::npos);
  const Ran profile = run_program("report-kernels " + folder.file("ours.kvt/kernels.sqlite"));
  CHECK(profile.code == 2);
  CHECK(profile.err.find("is a profile, not a trace\nnote: `kvroof import nsys ") != std::string::npos);
  std::filesystem::copy_file(folder.file("ours.kvt/kernels.sqlite"), folder.file("a.nsys-rep"));
  CHECK(run_program("report-kernels " + folder.file("a.nsys-rep")).err ==
        "error: " + folder.file("a.nsys-rep") + " is a profile, not a trace\nnote: `nsys export --type sqlite " +
            folder.file("a.nsys-rep") + "` makes " + folder.file("a.sqlite") + " of it, and `kvroof import nsys " +
            folder.file("a.sqlite") + " -o profile.kvt` makes one of that\n");
  CHECK(csv.out.find("\ngemm,gemm,2,700,43.75,350,350,71,300,400,,,,,,,\n") != std::string::npos);
  CHECK(csv.out.find("policy") == std::string::npos);
  const Ran steps = run_program("report-kernels " + trace + " --by step");
  CHECK(steps.code == 2);
  CHECK(steps.err.find("does not say which step a kernel belongs to") != std::string::npos);
  const Ran again = run_program("import nsys " + folder.file("ours.kvt/kernels.sqlite") + " -o " + trace);
  CHECK(again.code == 2);
  const Ran wrong =
      run_program("import kineto " + folder.file("ours.kvt/kernels.sqlite") + " -o " + folder.file("k.kvt"));
  CHECK(wrong.code == 1);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "k.kvt"));
}

TEST_CASE("Kernels of another program have a purpose by their names, and a report by it") {
  const TemporaryFolder folder;
  const auto event = [](const char* name, int start, int duration) {
    return fmt::format(R"({{"ph": "X", "cat": "kernel", "name": "{}", "ts": {}, "dur": {}}})", name, start, duration);
  };
  std::ofstream(folder.path() / "trace.json")
      << "{\"traceEvents\": [" << event("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", 0, 30) << ","
      << event("void cutlass::device_kernel<flash::FlashAttnFwdSm90<int> >(int)", 30, 20) << ","
      << event("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int> >(int)", 50, 40) << ","
      << event("void vllm::rms_norm_kernel<float>(float*)", 90, 10) << "]}";
  REQUIRE(run_program("import kineto " + folder.file("trace.json") + " -o " + folder.file("run.kvt")).code == 0);
  CHECK(run_program("report-kernels " + folder.file("run.kvt") + " -q --by purpose --format csv").out ==
        kOperatorColumns +
            "gemm,gemm,2,70000,70,35000,35000,7071,30000,40000,,,,,,,\n"
            "attention,attention,1,20000,20,20000,20000,,20000,20000,,,,,,,\n"
            "normalisation,normalisation,1,10000,10,10000,10000,,10000,10000,,,,,,,\n"
            "all kernels,total,4,100000,100,25000,25000,12910,10000,40000,,,,,,,\n"
            "idle between work,idle,0,0,0,0,,,,0,,,,,,,\n");
  CHECK(run_program("report-kernels " + folder.file("run.kvt") + " -q").out.find("median") != std::string::npos);
  CHECK(run_program("report-kernels " + folder.file("run.kvt") + " -q --format csv --top 3")
            .out.find("\n1 more,normalisation,1,10000,") != std::string::npos);
  CHECK(run_program("report-kernels " + folder.file("run.kvt") + " -q --format csv --top 2")
            .out.find("\n2 more,,2,30000,") != std::string::npos);  // attention and normalisation
  // One short name, two purposes.
  const std::string kernels = run_program("report-kernels " + folder.file("run.kvt") + " -q --format csv").out;
  CHECK(kernels.find("\ndevice_kernel,gemm,1,40000,") != std::string::npos);
  CHECK(kernels.find("\ndevice_kernel,attention,1,20000,") != std::string::npos);
}

TEST_CASE("Kernels of an imported PyTorch profile are of the operator that launched them and carry its bytes once") {
  const TemporaryFolder folder;
  const auto event = [](const char* category, const char* name, int at, const std::string& arguments) {
    return fmt::format(R"({{"ph": "X", "cat": "{}", "name": "{}", "ts": {}, "dur": 2, "args": {{{}}}}},)", category,
                       name, at, arguments);
  };
  const std::string dims = R"("Input Dims": [[4, 8], [8, 2]], "Input type": ["c10::Half", "c10::Half"])";
  std::ofstream(folder.path() / "trace.json")
      << R"({"traceEvents": [)" + event("cpu_op", "aten::mm", 1, R"("External id": 7, )" + dims) +
          event("cpu_op", "aten::cat", 2, R"("External id": 8, "Input Dims": [[[4, 8], [8, 2]], []], "Input type": )"
                                          R"(["TensorList", "Scalar"])") +
          event("kernel", "split", 10, R"("External id": 7, "correlation": 70)") +
          event("kernel", "gemm", 20, R"("External id": 7, "correlation": 71)") +
          event("kernel", "copy", 30, R"("External id": 8, "correlation": 72)") +
          event("kernel", "own", 40, R"("correlation": 9)") + "{}]}";
  const std::string trace = folder.file("run.kvt");
  const Ran imported = run_program("import kineto " + folder.file("trace.json") + " -o " + trace);
  INFO(imported.err);
  REQUIRE(imported.code == 0);
  CHECK(imported.err.find("note: 2 of the kernels are of operators whose shapes say") != std::string::npos);
  // (32 + 16 + 8) · 2 bytes in 4 us, 2 · 4 · 8 · 2 operations; of all kernels some are not known.
  CHECK(run_program("report-kernels " + trace + " -q --format csv --device h200").out ==
        kOperatorColumns +
            "aten::mm 4x8 8x2,operator,2,4000,12.5,2000,2000,0,2000,2000,112,,,28000000,0.0005833333333333334,"
            "1.1428571428571428,0.0005833333333333334\n"
            "copy,copy,1,2000,6.25,2000,2000,,2000,2000,,,,,,,\n"
            "own,other,1,2000,6.25,2000,2000,,2000,2000,,,,,,,\n"
            "all kernels,total,4,8000,25,2000,2000,0,2000,2000,,,,,,,\n"
            "idle between work,idle,3,24000,75,8000,,,,8000,,,,,,,\n");
  const std::string purposes = run_program("report-kernels " + trace + " -q --format csv --by purpose").out;
  CHECK(purposes.find("gemm,gemm,1,2000,") != std::string::npos);
  CHECK(run_program("report-kernels " + trace + " -q --by step").code == 2);  // an operator of PyTorch is of no step
  REQUIRE(run_program("export chrome " + trace + " -o " + folder.file("run.json")).code == 0);
  std::ifstream exported(folder.path() / "run.json");
  const std::string timeline{std::istreambuf_iterator<char>(exported), {}};
  CHECK(timeline.find("\"aten::mm 4x8 8x2\"") != std::string::npos);
  const Ran calibrated = run_program("calibrate --from " + trace + " --device h200");
  CHECK(calibrated.code == 2);
  CHECK(calibrated.err.starts_with("error: " + trace + ": operators of PyTorch declare bytes without saying which are "
                                   "weights and which are the cache's"));
  CHECK(timeline.find("\"step\"") == std::string::npos);
}

TEST_CASE("A board whose driver's name does not tell its form has its limit all the same") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "trace.json")
      << R"({"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": [
             {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {}}]})";
  REQUIRE(run_program("import kineto " + folder.file("trace.json") + " -o " + folder.file("run.kvt")).code == 0);
  CHECK(run_program("report-kernels " + folder.file("run.kvt"))
            .err.starts_with("limit: 3350 GB/s, h100-sxm (datasheet)\ntimes alone: "));
}

TEST_CASE("The limit is that of the GPU that kernels spent their time on, by the numbers of their process") {
  const TemporaryFolder folder;
  const auto report = [&](bool hidden) {
    const std::string trace = folder.file(hidden ? "hidden.kvt" : "both.kvt");
    TraceWriter writer(trace, profile_manifest());
    const auto add = [&](std::uint32_t device, std::uint32_t process, std::string_view name, std::string_view uuid) {
      DeviceRecord record;
      record.device = device;
      record.process = process;
      record.name = name;
      record.uuid = uuid;
      writer.profile().add(record);
    };
    add(0, 0, "NVIDIA L4", "GPU-a");
    add(hidden ? 0 : 1, hidden ? 42 : 0, "NVIDIA H100 80GB HBM3", "GPU-b");  // hidden: CUDA_VISIBLE_DEVICES=1
    KernelRecord gemm = kernel(1000, 1400, 10, "gemm");
    gemm.work.device = hidden ? 0 : 1;
    writer.profile().add(gemm);
    if (!hidden) writer.profile().add(kernel(1500, 1600, 11, "gemm"));
    writer.seal();
    return run_program("report-kernels " + trace).err;
  };
  CHECK(report(true).starts_with("limit: 3350 GB/s, h100-sxm (datasheet)\ntimes alone"));
  CHECK(report(false).starts_with("limit: 3350 GB/s, h100-sxm (datasheet)\nkernels of several devices are set against "
                                  "that one: NVIDIA H100 80GB HBM3, NVIDIA L4\n"));
}

TEST_CASE("Every step is in csv and json, those that a table has no room for are one row") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  constexpr std::uint32_t kSteps = 30;
  TraceWriter writer(trace, profile_manifest());
  for (std::uint32_t i = 0; i < kSteps; ++i) {
    writer.profile().add(kernel(1000 * (i + 1), 1000 * (i + 1) + 100 + i, i + 1, "gemm"));
    writer.profile().add(OperatorRecord{0, i + 1, i, 0, "qkv", "weights", 800, 1600});
  }
  writer.seal();
  const auto lines = [&](const std::string& words) {
    const std::string out = run_program("report-kernels " + trace + " --by step --format csv" + words).out;
    return std::count(out.begin(), out.end(), '\n');
  };
  CHECK(lines("") == 1 + kSteps);
  CHECK(lines(" --top 7") == 1 + 8);
  CHECK(nlohmann::json::parse(run_program("report-kernels " + trace + " --format json").out)["steps"].size() == kSteps);
  const std::string few = run_program("report-kernels " + trace + " --by step --format csv --top 28").out;
  CHECK(few.find("\n2 more,2,257,257,0,0,0,1600,,\n") != std::string::npos);  // 128 + 129 ns
  CHECK(run_program("report-kernels " + trace + " --by step").out.find("10 more") != std::string::npos);
}

#if defined(KVROOF_NO_LOCKS)
TEST_CASE("On a filesystem without locks of files traces are written and read, and only a repair asks for another") {
  const TemporaryFolder folder;
  const std::string program = "LD_PRELOAD=" KVROOF_NO_LOCKS " " KVROOF_PROGRAM, trace = folder.file("run.kvt");
  write_profile_trace(folder.file("a.kvt"));
  const Ran imported = run_program("import nsys " + folder.file("a.kvt/kernels.sqlite") + " -o " + trace, program);
  INFO(imported.err);
  REQUIRE(imported.code == 0);
  CHECK(run_program("report-kernels " + trace + " --format csv", program).out.find("\ngemm,") != std::string::npos);
  CHECK(run_program("inspect " + trace + " --verify").code == 0);
  // What a recorder leaves that was killed.
  std::filesystem::rename(trace + "/kernels.sqlite", trace + "/kernels.sqlite.part");
  std::filesystem::remove(trace + "/seal.json");
  std::ofstream(trace + "/writer.lock").flush();
  const Ran repaired = run_program("inspect --repair " + trace, program);
  CHECK(repaired.code == 4);
  CHECK(repaired.err.find("this filesystem has no locks of files") != std::string::npos);
  CHECK(run_program("inspect --repair " + trace).code == 0);
}
#endif

TEST_CASE("export refuses what it cannot do in one sentence, and leaves nothing") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), out = folder.file("out");
  write_profile_trace(trace);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"perfeto " + trace + " -o " + out, "error: export perfeto: this kind is not known; did you mean"},
      {"perfetto " + trace, "error: -o F is missing"},
      {"perfetto " + trace + " --policy h2o -o " + out, "error: --device NAME is missing"},
      {"perfetto " + trace + " --device h200 -o " + out, "error: " + trace + " holds a profiler's records alone"},
      {"csv " + trace + " --device h200 -o " + out, "error: export csv takes neither"},
      {"csv " + trace + " -o " + trace, "error: " + trace + " exists already"},
  };
  for (const auto& [words, error] : cases) {
    const Ran ran = run_program("export " + words);
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.err.starts_with(error));
    CHECK_FALSE(std::filesystem::exists(out));
    CHECK_FALSE(has_part_file(folder.path()));
  }
  for (const char* kind : {"csv", "chrome"}) {
    CHECK(run_program(std::string("export ") + kind + " " + trace + " -o " + folder.file("no/such")).err ==
          "error: " + folder.file("no/such") + ": cannot be written: No such file or directory\n");
  }
}
