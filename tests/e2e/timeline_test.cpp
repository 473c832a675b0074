// Timelines of recordings: what tracks are called, where slices lie, and which recordings have none.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

TEST_CASE("Ranges and calls that began before the first kernel have their true lengths in a timeline") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), out = folder.file("out.json");
  TraceWriter writer(trace, profile_manifest());
  writer.profile().add(RangeRecord{2'000'000, 5'000'000, 42, 43, "load model"});
  writer.profile().add(RangeRecord{6'000'000, 9'000'000, 42, 43, "forward"});
  writer.profile().add(CallRecord{1'000'000, 1'500'000, 42, 43, 1, 0, false, "cudaFree_v3020"});
  writer.profile().add(CallRecord{1'000'000, 1'500'000, 99, 43, 10, 0, false, "cudaMalloc_v3020"});
  writer.profile().add(CallRecord{6'500'000, 6'600'000, 42, 43, 10, 0, false, "cudaLaunchKernel_v7000"});
  writer.profile().add(kernel(7'000'000, 8'000'000, 10, "gemm"));
  writer.seal();
  REQUIRE(run_program("export chrome " + trace + " -o " + out).code == 0);
  std::map<std::string, std::pair<double, double>> slices;  // us
  const auto timeline = nlohmann::json::parse(slurp(out));
  for (const auto& event : timeline["traceEvents"]) {
    if (event["ph"] == "X") slices[event["name"]] = {event["ts"], event["dur"]};
  }
  CHECK(slices.at("load model") == std::pair(0.0, 3000.0));
  CHECK(slices.at("forward") == std::pair(4000.0, 3000.0));
  CHECK(slices.at("gemm") == std::pair(5000.0, 1000.0));
  CHECK(slices.at("cudaLaunchKernel_v7000") == std::pair(4500.0, 100.0));
  CHECK(slices.size() == 4);
}

TEST_CASE("Device 0 of two processes has the number of its GPU in a timeline, and none where that is not recorded") {
  const TemporaryFolder folder;
  const auto tracks = [&](const std::string& name, bool known) {
    const std::string trace = folder.file(name + ".kvt"), out = folder.file(name + ".json");
    TraceWriter writer(trace, profile_manifest());
    for (const auto& [process, uuid] : {std::pair(1000U, "GPU-a"), std::pair(2000U, "GPU-b")}) {
      DeviceRecord device;
      device.name = "NVIDIA H200";
      device.process = process;
      device.uuid = uuid;
      if (known) writer.profile().add(device);
      KernelRecord gemm = kernel(1000, 1400, 10, "gemm");
      gemm.work.process = process;
      writer.profile().add(gemm);
    }
    writer.seal();
    REQUIRE(run_program("export chrome " + trace + " -o " + out).code == 0);
    std::set<std::string> names;
    const auto timeline = nlohmann::json::parse(slurp(out));
    for (const auto& event : timeline["traceEvents"]) {
      if (event["name"] == "thread_name") names.insert(event["args"]["name"].get<std::string>());
    }
    return names;
  };
  CHECK(tracks("known", true) ==
        std::set<std::string>{"GPU 0 stream 7, process 1000", "GPU 1 stream 7, process 2000"});
  CHECK(tracks("unknown", false) ==
        std::set<std::string>{"device 0 stream 7, process 1000", "device 0 stream 7, process 2000"});
}

TEST_CASE("a timeline of imported tensors alone would be empty, and a simulated run of them is not") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), out = folder.file("out");
  REQUIRE(run_program("import qkv " + std::string(KVROOF_SOURCE_DIR) +
                      "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors --prompt 64 -o " + trace).code == 0);
  for (const char* kind : {"perfetto ", "chrome "}) {
    const Ran ran = run_program("export " + (kind + trace) + " -o " + out);
    CHECK(ran.code == 2);
    CHECK(ran.err.starts_with("error: " + trace + ": nothing in it has a time"));
    CHECK_FALSE(std::filesystem::exists(out));
    CHECK_FALSE(has_part_file(folder.path()));
  }
  const Ran simulated = run_program("export chrome " + trace + " --device h200 -o " + out);
  REQUIRE(simulated.code == 0);
  CHECK(simulated.err ==
        "note: the trace holds imported tensors and names no model: bytes and time cover attention alone\n");
  CHECK(slurp(out).find("simulated: full on h200") != std::string::npos);
}
