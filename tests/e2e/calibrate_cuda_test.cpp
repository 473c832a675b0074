// `kvroof calibrate` of a GPU, whose kernels an emulator runs by a clock of its own: a start and a rate.
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "kernels/cuda/measure/bench_device.hpp"
#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::has_part_file;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

Ran run_emulated(const std::string& words) { return run_program(words, KVROOF_EMULATED); }

std::string device_file(const TemporaryFolder& folder, const std::string& name, double gb_per_s) {
  const std::string path = folder.file(name + ".yaml");
  std::ofstream(path) << "name: " << name << "\nkind: gpu\nmemory_type: hbm\nfacts:\n"
                      << "  usable_mib: {value: 81920, provenance: datasheet, source: a made device}\n"
                      << "  bandwidth_gb_per_s: {value: " << gb_per_s << ", provenance: datasheet, source: made}\n"
                      << "  peak_bf16_tflops: {value: 1000, provenance: datasheet, source: a made device}\n";
  return path;
}

json facts_of(const std::string& file) {
  json facts;
  for (const json& fact : json::parse(run_program("devices show " + file + " --format json").out)) {
    facts[fact["fact"].get<std::string>()] = fact;
  }
  return facts;
}

double tpot_ms(const std::string& file) {
  const std::string words = "plan --model llama-3-8b --prompt 4k --output 1k --batch 1 --format json --device ";
  const Ran ran = run_program(words + file);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  return json::parse(ran.out)["tpot_ms"]["value"];
}

}  // namespace

TEST_CASE("calibrate of a GPU gives back the start and the rate of its kernels, and a plan with its file follows") {
  const TemporaryFolder folder;
  const std::string base = device_file(folder, "emulator", 2), file = folder.file("mine.yaml");
  const Ran ran = run_emulated("calibrate --device " + base + " -o " + file);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(ran.err.find("matrix products: 11 samples set linear_t0_us, linear_fraction") == 0);
  const json facts = facts_of(file);
  const double share = kvroof::cuda::kEmulatedBytesPerSecond / 2e9;
  const double start_us = 1e6 * kvroof::cuda::kEmulatedStartSeconds;
  for (const std::string of : {"linear", "attention"}) {
    CHECK(facts[of + "_fraction"]["value"].get<double>() == Approx(share).epsilon(1e-3));
    CHECK(facts[of + "_fraction"]["provenance"] == "measured");
    CHECK(facts[of + "_fraction"]["source"].get<std::string>().find("kvroof calibrate on emulator, ") == 0);
  }
  CHECK(facts["linear_t0_us"]["value"].get<double>() == Approx(start_us).epsilon(1e-3));
  CHECK(facts["attention_floor_us"]["value"].get<double>() == Approx(start_us).epsilon(1e-3));
  CHECK(facts["bandwidth_gb_per_s"]["value"] == 2);  // the datasheet's
  // Eight billion weights of two bytes at three quarters of 2 GB/s, and what is small beside them.
  CHECK(tpot_ms(file) == Approx(15.0 / 1.5 * 1e3).epsilon(0.1));
  CHECK(tpot_ms(file) > 1.05 * tpot_ms(base));
  const Ran again = run_emulated("calibrate --device " + base + " -q --format json");
  const json printed = json::parse(again.out);
  CHECK(printed["gpu"] == "emulator");
  CHECK(printed["kernels"].size() == 22);
  CHECK(printed["streams"].size() == 8);
  CHECK(printed["cut"] == 0);
}

TEST_CASE("calibrate of a GPU has products of many tokens by the library that the engine takes, and says so") {
  const TemporaryFolder folder;
  const std::string file = folder.file("mine.yaml");
  const std::string words = "calibrate -q --device " + device_file(folder, "emulator", 2) + " --format json -o " + file;
  const std::string made = "KVROOF_EMULATED_LIBRARIES=" + std::string(KVROOF_MADE_LIBRARIES) + " ";
  const auto by_library = [&](const std::string& environment) {
    const Ran ran = run_program(words, environment + KVROOF_EMULATED);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    std::vector<std::string> shapes;
    const json printed = json::parse(ran.out);
    for (const json& kernel : printed["kernels"]) {
      const std::string what = kernel["what"];
      if (what.ends_with(" by cuBLASLt")) shapes.push_back(what);
    }
    return shapes;
  };
  CHECK(by_library(made) == std::vector<std::string>{"product [2, 64] x [64, 64] by cuBLASLt"});
  const std::string source = facts_of(file)["linear_fraction"]["source"];
  CHECK(source.ends_with(" and, for more than one token, of cuBLASLt 13.1.99"));
  // Where it is not found, or refuses its first product, our own kernels make all of them.
  for (const std::string& without : {std::string(), made + "KVROOF_MADE_CUBLASLT=matmul "}) {
    CHECK(by_library(without).empty());
    CHECK(facts_of(file)["linear_fraction"]["source"].get<std::string>().find("cuBLASLt") == std::string::npos);
  }
}

TEST_CASE("calibrate of a GPU refuses a memory that is too fast, another device, and one of no known facts") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& words, int code, const std::string& sentence) {
    const Ran ran = run_emulated("calibrate -o " + folder.file("out.yaml") + " " + words);
    INFO(ran.err);
    CHECK(ran.code == code);
    CHECK(ran.err.find(sentence) != std::string::npos);
  };
  const std::string slow = "--device " + device_file(folder, "emulator", 1);
  refused(slow, 1, "% of what emulator can");
  refused(slow, 1, "#   attention, batch 1 of 80 tokens");  // what was measured is not lost
  const Ran unfitted = run_emulated("calibrate -q --format json " + slow);
  CHECK(unfitted.code == 1);
  CHECK(json::parse(unfitted.out)["kernels"].size() == 22);
  refused("--device h200", 2, "the GPU here is emulator: a calibration is of one device");
  refused("--device " + device_file(folder, "other", 2), 2, "the GPU here is emulator: a calibration is of one");
  refused("--backend cuda", 2, "the GPU here, emulator, is not in the catalog");
  refused("--backend cuda", 2, "`name:` has to consist of words of the driver's name");
  CHECK_FALSE(std::filesystem::exists(folder.file("out.yaml")));
}

TEST_CASE("calibrate of a GPU refuses a board of the device's name with other multiprocessors or another memory") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& device, const std::string& bytes, const std::string& sentence) {
    const Ran ran = run_program("calibrate -q --device " + device, "KVROOF_EMULATED_BYTES=" + bytes + " " +
                                                                    std::string(KVROOF_EMULATED));
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.err.find(sentence) != std::string::npos);
  };
  const std::string device = device_file(folder, "emulator", 2);  // of 80 GiB
  refused(device, "75161927680", "emulator: the GPU here has 70.0 GiB of memory, the device 80.0");
  std::ofstream(device, std::ios::app) << "  sm_count: {value: 132, provenance: datasheet, source: made}\n";
  refused(device, "85899345920", "emulator: the GPU here has 3 multiprocessors, the device 132");
}

TEST_CASE("calibrate finds that its file cannot be written before it measures, and leaves nothing behind") {
  const TemporaryFolder folder;
  const std::string device = device_file(folder, "emulator", 1);  // what is measured would be refused
  for (const std::string& out : {folder.file("none/mine.yaml"), folder.path().string()}) {
    const Ran ran = run_emulated("calibrate --device " + device + " -o " + out);
    INFO(ran.err);
    CHECK(ran.code == 1);
    CHECK(ran.err.find(out + ": cannot be written: ") != std::string::npos);
    CHECK(ran.err.find("# Kernels") == std::string::npos);
  }
  CHECK(run_emulated("calibrate --device " + device + " -o " + folder.file("mine.yaml")).code == 1);
  CHECK_FALSE(has_part_file(folder.path()));
}

TEST_CASE("calibrate of a GPU that is not here ends with 77 and says why") {
  const Ran run = run_program("run --ids 5 --backend cuda --model " + std::string(KVROOF_SOURCE_DIR) + "/models/demo");
  if (run.code != 77) return;
  const std::string start = "error: --backend cuda: ";
  REQUIRE(run.err.find(start) == 0);
  const std::string reason = run.err.substr(start.size(), run.err.find('\n') - start.size());
  for (const std::string words : {"--backend cuda", "--backend cuda --device h200"}) {
    const Ran ran = run_program("calibrate " + words);
    CHECK(ran.code == 77);
    CHECK(ran.err.find(reason) != std::string::npos);
  }
}
