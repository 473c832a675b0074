// `kvroof calibrate` of a GPU, whose kernels an emulator runs by a clock of its own: a start and a rate.
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "kernels/cuda/measure/bench_device.hpp"
#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

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
  CHECK(ran.err.find("matrix products: 10 samples set linear_t0_us, linear_fraction") == 0);
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
  CHECK(printed["kernels"].size() == 21);
  CHECK(printed["streams"].size() == 8);
  CHECK(printed["cut"] == 0);
}

TEST_CASE("calibrate of a GPU refuses a memory that is too fast, another device, and one of no known facts") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& words, int code, const std::string& sentence) {
    const Ran ran = run_emulated("calibrate -o " + folder.file("out.yaml") + " " + words);
    INFO(ran.err);
    CHECK(ran.code == code);
    CHECK(ran.err.find(sentence) != std::string::npos);
  };
  refused("--device " + device_file(folder, "emulator", 1), 1, "% of what emulator can");
  refused("--device h200", 2, "the GPU here is emulator: a calibration is of one device");
  refused("--device " + device_file(folder, "other", 2), 2, "the GPU here is emulator: a calibration is of one");
  refused("--backend cuda", 2, "the GPU here, emulator, is not in the catalog");
  CHECK_FALSE(std::filesystem::exists(folder.file("out.yaml")));
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
