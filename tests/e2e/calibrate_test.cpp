// `kvroof calibrate` as a user meets it.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

TEST_CASE("calibrate writes a device file of measured facts, none above 100 %, and prints them as JSON when asked") {
  const TemporaryFolder folder;
  const std::string file = folder.file("cpu.yaml");
  const Ran ran = run_program("calibrate --backend cpu --threads 1 --format json -o " + file);  // others need theirs
  if (ran.code == 1 && ran.err.find("which cannot be: the machine was busy") != std::string::npos) return;
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  const json printed = json::parse(ran.out);
  CHECK(printed["reads_by_threads"].size() == 1);
  CHECK(printed["products"].size() == 3);
  CHECK(printed["read_in_turn"]["bytes_per_s"].get<double>() > 0.1e9);
  const Ran shown = run_program("devices show " + file + " --format json");
  INFO(shown.err);
  REQUIRE(shown.code == 0);
  json facts = json::array();
  for (const json& fact : json::parse(shown.out)) {
    // A CPU has no kernels by themselves: what those cost stays the judgement of its type of memory.
    if (fact["fact"] != "attention_call_us" && fact["fact"] != "attention_cold_us") facts.push_back(fact);
  }
  CHECK(printed["facts"] == facts);
  REQUIRE(printed["working_sets"].size() >= 3);
  CHECK(std::count_if(facts.begin(), facts.end(), [](const json& fact) {
    return fact["fact"].get<std::string>().starts_with("working_set_");
  }) == 2 * static_cast<std::ptrdiff_t>(printed["working_sets"].size()));
  int shares = 0;
  for (const json& fact : facts) {
    CHECK(fact["provenance"] == "measured");
    CHECK(fact["source"].get<std::string>().find("kvroof calibrate on ") == 0);
    if (fact["fact"].get<std::string>().find("_fraction") == std::string::npos) continue;
    ++shares;
    CHECK(fact["value"].get<double>() > 0.02);
    CHECK(fact["value"].get<double>() <= 1);
  }
  CHECK(shares == 3);
}

TEST_CASE("calibrate says in one sentence what it cannot measure: unknown names, and what contradicts itself") {
  const auto refused = [](const std::string& words, const std::string& sentence) {
    const Ran ran = run_program("calibrate " + words);
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.err.find("error: " + sentence) == 0);
  };
  refused("--device h10O-sxm", "unknown device 'h10O-sxm'; did you mean h100-sxm?");
  refused("--backend gpu", "--backend gpu: calibrate measures cpu or cuda");
  refused("--backend cuda --device cpu", "--device cpu is a CPU, which --backend cuda does not measure");
  refused("--backend cpu --device h200", "--device h200 is a GPU, which --backend cpu does not measure");
}

namespace {

// The kernels of one table among the shipped rows, as a file of its own, with `to` in place of `from` in each.
std::string kernels_of(const TemporaryFolder& folder, const std::string& table, const std::string& from = "",
                       const std::string& to = "") {
  std::ifstream in(std::string(KVROOF_SOURCE_DIR) + "/validation/published.csv");
  const std::string path = folder.file("kernels.csv");
  std::ofstream out(path);
  std::string line;
  for (bool header = true; std::getline(in, line); header = false) {
    if (!header && (line.find(",kernel,") == std::string::npos || line.find(table) == std::string::npos)) continue;
    const std::size_t at = from.empty() ? std::string::npos : line.find(from);
    if (!header && at != std::string::npos) line.replace(at, from.size(), to);
    out << line << "\n";
  }
  return path;
}

// A made processor, slower than any that runs this.
void write_slow_cpu(const std::string& path) {
  std::ofstream(path) << "name: slow\nkind: cpu\nmemory_type: ddr\nfacts:\n"
      "  usable_mib: {value: 4096, provenance: datasheet, source: a made machine}\n"
      "  bandwidth_gb_per_s: {value: 1, provenance: datasheet, source: a made machine}\n"
      "  peak_fp32_tflops: {value: 0.1, provenance: datasheet, source: a made machine}\n"
      "  linear_t0_us: {value: 0, provenance: measured, source: a made machine}\n"
      "  attention_floor_us: {value: 0, provenance: measured, source: a made machine}\n"
      "  elementwise_us: {value: 0, provenance: measured, source: a made machine}\n";
}

}  // namespace

TEST_CASE("calibrate fits a table of kernels and writes the device with what they say, and nothing else") {
  const TemporaryFolder folder;
  const std::string file = folder.file("mine.yaml");
  const std::string table = kernels_of(folder, "h100_sxm/trtllm");
  const Ran ran = run_program("calibrate --from " + table + " --device h100-sxm -o " + file);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(ran.err.find("matrix products: ") == 0);
  CHECK(ran.err.find("attention calls by themselves: 13 samples set attention_call_us") != std::string::npos);
  const json mine = json::parse(run_program("devices show " + file + " --format json").out);
  const json catalog = json::parse(run_program("devices show h100-sxm --format json").out);
  REQUIRE(mine.size() == catalog.size());
  int fitted = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (mine[i]["source"] != "kvroof calibrate from kernels.csv") {
      CHECK(mine[i]["value"] == catalog[i]["value"]);
      continue;
    }
    ++fitted;
    // The same tables are behind the catalog's constants: a fit to their rows comes near them.
    if (mine[i]["fact"].get<std::string>().find("fraction") == std::string::npos) continue;
    CHECK(mine[i]["value"].get<double>() == Approx(catalog[i]["value"].get<double>()).epsilon(0.15));
  }
  CHECK(fitted >= 4);
}

TEST_CASE("calibrate refuses kernels of another device, of no unit or time, in a warm cache, and a file without any") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& device) {
    const std::string table = kernels_of(folder, "h100_sxm/trtllm", from, to);
    return run_program("calibrate --from " + table + " --device " + device + " -o " + folder.file("out.yaml"));
  };
  CHECK(refused("", "", "a100-80g").err.find("was measured on H100-SXM-80GB, not on a100-80g") != std::string::npos);
  CHECK(refused("", "", "a100-80g").code == 2);
  CHECK(refused(",us,", ",,", "h100-sxm").err.find("line 2: it has no unit") != std::string::npos);
  CHECK(refused(",us,", ",GB/s,", "h100-sxm").err.find("`GB/s` is no unit of time") != std::string::npos);
  CHECK(refused(",us,", ",s,", "h100-sxm").code == 1);  // seconds: no start-up and rate fit, or a rate beyond all files
  CHECK(refused(",kernel_time,", ",kernel_time,0.", "h100-sxm").code == 2);  // 0.3.5 is no number
  CHECK(run_program("calibrate --from " + folder.file("none.csv") + " --device h100-sxm").code == 2);
  CHECK(run_program("calibrate --from x.csv").err.find("--from needs --device") != std::string::npos);
  const Ran both = run_program("calibrate --from x.csv --device h100-sxm --backend nonsense");
  CHECK(both.code == 2);
  CHECK(both.err.find("--from and --backend: ") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("out.yaml")));
}

TEST_CASE("a recorded run of a small model lay in the processor's cache, and its steps are refused as a calibration") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const std::string model = std::string(KVROOF_SOURCE_DIR) + "/models/demo";
  REQUIRE(run_program("record --model " + model + " --ids \"5 17 40\" -n 24 --ignore-eos -o " + trace).code == 0);
  write_slow_cpu(folder.file("slow.yaml"));
  const Ran ran = run_program("calibrate --from " + trace + " --device " + folder.file("slow.yaml"));
  // Where other work makes the steps' times uneven, that is said first, and nothing is taken of them either.
  INFO(ran.out << ran.err);
  CHECK((ran.code == 1 || ran.err.find("a busy machine") != std::string::npos ||
         ran.out.find("a busy machine") != std::string::npos));
  CHECK(run_program("calibrate --from " + trace + " --device h100-sxm").code == 2);
  const Ran compared = run_program("validate " + trace + " --format json --device " + folder.file("slow.yaml"));
  INFO(compared.err);
  REQUIRE(compared.code == 0);
  const json rows = json::parse(compared.out);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["steps"] == 23);
  CHECK(rows[0]["low95_ms"].get<double>() < rows[0]["predicted_ms"].get<double>());
  CHECK(rows[2]["predicted_ms"].get<double>() > rows[1]["predicted_ms"].get<double>());  // the cache has grown
  CHECK(run_program("validate " + trace).err.find("needs --device") != std::string::npos);
  CHECK(run_program("validate " + trace + " --papers --device cpu.yaml").code == 2);
}

TEST_CASE("a run of the engine without captured attention is called so, and validated like one that has it") {
  const TemporaryFolder folder;
  write_slow_cpu(folder.file("slow.yaml"));
  const auto predicted = [&](const std::string& options) {
    const std::string trace = folder.file("run" + std::to_string(options.size()) + ".kvt");
    const std::string record = "record -q --model demo --ids \"5 17 40\" -n 9 --ignore-eos ";
    REQUIRE(run_program(record + options + " -o " + trace).code == 0);
    const Ran ran = run_program("validate " + trace + " --format json --device " + folder.file("slow.yaml"));
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    json rows = json::parse(ran.out);
    for (json& row : rows) row = {row["steps"], row["predicted_ms"], row["low95_ms"], row["high95_ms"]};
    return std::pair(trace, rows);
  };
  const auto [whole, expected] = predicted("");
  const auto [steps, rows] = predicted("--no-capture");
  CHECK(rows == expected);
  const std::string inspected = run_program("inspect " + steps).out;
  for (const char* line : {"none: the engine's steps, without queries, keys and values", "model         demo\n",
                           "back end      fast\n", "policy        full\n"}) {
    INFO(inspected);
    CHECK(inspected.find(line) != std::string::npos);
  }
  const Ran replayed = run_program("replay " + steps + " --policy full");
  CHECK(replayed.code == 2);
  CHECK(replayed.err.find("a run of kvroof's own engine without queries, keys and values") != std::string::npos);
  CHECK(replayed.err.find("profiler") == std::string::npos);
}

TEST_CASE("a calibration of another version is refused with its line") {
  const TemporaryFolder folder;
  std::ifstream in(std::string(KVROOF_SOURCE_DIR) + "/catalog/devices/t4.yaml");
  const std::string t4{std::istreambuf_iterator<char>(in), {}};
  std::ofstream(folder.file("old.yaml")) << "calibration: 7\n" << t4;
  const Ran ran = run_program("devices show " + folder.file("old.yaml"));
  CHECK(ran.code == 2);
  const std::string sentence = "line 1: a calibration of version 7, but this program reads versions 1 and 2";
  CHECK(ran.err.find(sentence) != std::string::npos);
}
