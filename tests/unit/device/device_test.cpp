#include "sim/device/device.hpp"

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

using F = DeviceField;
const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

std::vector<Device> all_devices() {
  std::vector<Device> devices;
  for (const std::string& name : catalog_device_names(kCatalog)) devices.push_back(find_device(name, kCatalog));
  return devices;
}

double value(const Device& d, F f) { return d.fact(f) ? d.fact(f)->value : 0.0; }

std::string file_with(const std::string& fact, const std::string& name = "mine") {
  return "name: " + name + "\nkind: gpu\nmemory_type: hbm\nfacts:\n"
         "  usable_mib: {value: 80000, provenance: measured, source: me}\n"
         "  bandwidth_gb_per_s: {value: 2000, provenance: datasheet, source: me}\n"
         "  peak_bf16_tflops: {value: 300, provenance: datasheet, source: me}\n" +
         fact;
}

std::string problem_with(const std::string& fact) {
  const auto result = device_from_yaml(file_with(fact));
  return result.ok() ? std::string() : result.error();
}

std::string message_of(const std::string& name, const std::filesystem::path& catalog = kCatalog) {
  try {
    find_device(name, catalog);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the five devices that every answer names are in the catalog") {
  for (const char* name : {"h200", "h100-sxm", "a100-80g", "l40s", "rtx-4090"})
    CHECK_NOTHROW(find_device(name, kCatalog));
}

TEST_CASE("every catalog device has its file's name, complete achieved facts and a source for each number") {
  for (const Device& d : all_devices()) {
    INFO(d.name);
    CHECK(std::filesystem::exists(kCatalog / "devices" / (d.name + ".yaml")));
    for (const DeviceFieldInfo& info : device_fields()) {
      INFO(info.key);
      if (info.field >= F::kLinearFraction) CHECK(d.fact(info.field).has_value());
      if (!d.fact(info.field)) continue;
      CHECK(d.fact(info.field)->source.size() > 10);  // resolved, not the name of a source
      if (d.fact(info.field)->provenance == Provenance::kPrior) CHECK(d.fact(info.field)->spread > 0);
    }
    if (d.price) CHECK(d.price->low_usd_per_hour <= d.price->high_usd_per_hour);
  }
}

TEST_CASE("all devices of an architecture have a rate of FP8, or of INT8, or none has") {
  for (const F field : {F::kPeakFp8Tflops, F::kPeakInt8Tops}) {
    std::map<std::string, Device> first;  // by architecture
    for (const Device& d : all_devices()) {
      const Device& other = first.emplace(d.architecture, d).first->second;
      INFO(d.name << " beside " << other.name);
      CHECK(d.fact(field).has_value() == other.fact(field).has_value());
    }
  }
}

TEST_CASE("FP8 is twice BF16, but as BF16 on Gaudi 3") {
  for (const Device& d : all_devices()) {
    if (!d.fact(F::kPeakFp8Tflops)) continue;
    INFO(d.name);
    const double times = d.name == "gaudi-3" ? 1 : 2;
    CHECK(value(d, F::kPeakFp8Tflops) == Approx(times * value(d, F::kPeakBf16Tflops)).epsilon(0.015));
  }
}

TEST_CASE("INT8 is twice 16 bits at full rate, four times GeForce's half of it, a fifteenth on Blackwell Ultra") {
  for (const Device& d : all_devices()) {
    if (!d.fact(F::kPeakInt8Tops)) continue;
    INFO(d.name);
    const bool ultra = d.name == "b300" || d.name == "gb300";
    const bool halves = d.title.find("GeForce") != std::string::npos || d.name == "dgx-spark";  // sums in fp32
    const double times = ultra ? 1.0 / 15 : halves ? 4 : d.architecture == "CDNA2" ? 1 : 2;
    const double half = std::max(value(d, F::kPeakBf16Tflops), value(d, F::kPeakFp16Tflops));
    CHECK(value(d, F::kPeakInt8Tops) == Approx(times * half).epsilon(0.015));
  }
}

TEST_CASE("TF32 is half of BF16") {
  for (const Device& d : all_devices()) {
    INFO(d.name);
    if (d.fact(F::kPeakTf32Tflops)) {
      CHECK(value(d, F::kPeakTf32Tflops) == Approx(0.5 * value(d, F::kPeakBf16Tflops)).epsilon(0.015));
    }
  }
}

TEST_CASE("bandwidth is bus width times data rate where both are given") {
  int given = 0;
  for (const Device& d : all_devices()) {
    if (!d.fact(F::kBusBits) || !d.fact(F::kPinMbitPerS)) continue;
    INFO(d.name);
    CHECK(value(d, F::kBusBits) * value(d, F::kPinMbitPerS) / 8000 ==
          Approx(value(d, F::kBandwidthGbPerS)).epsilon(0.03));
    ++given;
  }
  CHECK(given >= 10);
}

TEST_CASE("no rate is a sparse one: 16-bit peaks are clock times units") {
  // Dense multiply-adds a clock of one multiprocessor, accumulated in fp32, from the vendors' architecture papers.
  struct Row {
    const char* name;
    double clock_mhz, fma_per_clock;
  };
  for (const Row& row :
       {Row{"h200", 1830, 2048}, Row{"h100-sxm", 1830, 2048}, Row{"h100-pcie", 1620, 2048}, Row{"a100-80g", 1410, 1024},
        Row{"a100-40g", 1410, 1024}, Row{"l40s", 2520, 512}, Row{"l4", 2040, 512}, Row{"rtx-4090", 2520, 256},
        Row{"rtx-3090", 1695, 256}, Row{"rtx-5090", 2407, 256}, Row{"t4", 1590, 512}, Row{"v100-32g", 1530, 512},
        Row{"v100-pcie-32g", 1380, 512},
        Row{"a10", 1695, 512}, Row{"a30", 1440, 1024}, Row{"a40", 1740, 512}, Row{"rtx-a6000", 1800, 512},
        Row{"rtx-6000-ada", 2505, 512}, Row{"rtx-pro-6000", 2617, 512}, Row{"rtx-pro-6000-server", 2430, 512},
        Row{"gh200-96g", 1830, 2048}, Row{"gh200-144g", 1830, 2048}, Row{"mi300x", 2100, 1024},
        Row{"mi325x", 2100, 1024}, Row{"mi355x", 2400, 2048}, Row{"rtx-4090-laptop", 2040, 256},
        Row{"rtx-5090-laptop", 2160, 256}, Row{"jetson-agx-orin-64g", 1300, 1024}}) {
    INFO(row.name);
    const Device d = find_device(row.name, kCatalog);
    const double peak = value(d, F::kSmCount) * row.clock_mhz * 1e6 * row.fma_per_clock * 2 / 1e12;
    CHECK(value(d, F::kPeakFp16Tflops) == Approx(peak).epsilon(0.015));
  }
}

TEST_CASE("usable memory is binary, and less than the marketed size read as GiB, by more where a CPU shares it") {
  for (const Device& d : all_devices()) {
    INFO(d.name);
    const bool shared = d.name == "dgx-spark" || d.name == "jetson-agx-orin-64g";
    CHECK(value(d, F::kUsableMib) < value(d, F::kMemoryGb) * 1024 * (shared ? 0.95 : 1));
    CHECK(value(d, F::kUsableMib) > value(d, F::kMemoryGb) * 1024 * (shared ? 0.85 : 0.91));
  }
  CHECK(find_device("rtx-4090", kCatalog).usable_memory().value == std::uint64_t{24207} << 20);
  CHECK(find_device("a100-80g", kCatalog).bandwidth().value == 2039e9);  // decimal
}

TEST_CASE("a type without a rate of its own is computed in the next one") {
  const Device t4 = find_device("t4", kCatalog);
  CHECK(t4.peak(DType::kBF16).value == 65e12);
  CHECK(t4.peak(DType::kF32).value == Approx(8.1e12));
  CHECK(find_device("h200", kCatalog).peak(DType::kBF16).value == 989e12);
}

TEST_CASE("a device that no one has measured takes the priors of its memory type") {
  const Device v100 = find_device("v100-32g", kCatalog);
  CHECK(value(v100, F::kLinearFraction) == 0.82);
  CHECK(v100.fact(F::kLinearFraction)->provenance == Provenance::kPrior);
  CHECK(find_device("h200", kCatalog).fact(F::kLinearFraction)->provenance == Provenance::kMeasured);
}

TEST_CASE("a device of measured silicon takes what was measured there, as a prior and as wide as one") {
  const Device h100 = find_device("h100-sxm", kCatalog), nvl = find_device("h100-nvl", kCatalog);
  const std::optional<Fact>& start = nvl.fact(F::kLinearT0Us);
  CHECK(start->value == value(h100, F::kLinearT0Us));
  CHECK(start->provenance == Provenance::kPrior);
  CHECK(start->source.find("as on h100-sxm, the same silicon: ") == 0);
  CHECK(nvl.fact(F::kLinearFraction)->spread == 0.12);  // of HBM boards that no one has measured; H100's own is 0.07
  CHECK(h100.fact(F::kLinearFraction)->spread == 0.07);
  // B300's silicon is B200's, and GB300's is B300's.
  CHECK(value(find_device("gb300", kCatalog), F::kLinearT0Us) == value(find_device("b200", kCatalog), F::kLinearT0Us));
}

TEST_CASE("a slower memory of the same silicon is filled to no lower share and at no higher rate") {
  // A100 SXM 80 GB reaches 0.8 of 2,039 GB/s in attention; HBM boards in general 0.86.
  CHECK(value(find_device("a100-40g", kCatalog), F::kAttentionFraction) == 0.86);
  CHECK(value(find_device("a100-pcie-80g", kCatalog), F::kAttentionFraction) == Approx(0.8 * 2039 / 1935));
  CHECK(value(find_device("a100-pcie-40g", kCatalog), F::kAttentionFraction) == 0.86);  // by way of the 80 GB board
  CHECK(value(find_device("h100-pcie", kCatalog), F::kAttentionFraction) == 0.9);
}

TEST_CASE("a file whose silicon is none of the catalog is refused with the nearest name") {
  const auto path = std::filesystem::temp_directory_path() / "kvroof-silicon-test.yaml";
  std::ofstream(path) << "kernels_as: h100-sxn\n" << file_with("");
  CHECK(message_of(path.string()) == path.string() + ": line 1: kernels_as names no device of the catalog: 'h100-sxn'; "
                                                     "did you mean h100-sxm?");
  std::filesystem::remove(path);
}

TEST_CASE("devices that have each other's silicon are refused with the line and the way round") {
  const auto catalog = std::filesystem::temp_directory_path() / "kvroof-silicon-circle-test";
  std::filesystem::create_directories(catalog / "devices");
  std::filesystem::copy(kCatalog / "memory", catalog / "memory",
                        std::filesystem::copy_options::overwrite_existing | std::filesystem::copy_options::recursive);
  std::ofstream(catalog / "devices" / "one.yaml") << file_with("", "one") << "kernels_as: two\n";
  std::ofstream(catalog / "devices" / "two.yaml") << "kernels_as: one\n" << file_with("", "two");
  CHECK(message_of("one", catalog) ==
        (catalog / "devices" / "two.yaml").string() + ": line 1: kernels_as is 'one', whose silicon is this device's "
        "again (one -> two -> one); name a device that was measured, or take the key out");
  std::filesystem::remove_all(catalog);
}

TEST_CASE("a device file survives the way through its text form") {
  for (const Device& d : all_devices()) {
    const auto back = device_from_yaml(device_to_yaml(d));
    REQUIRE(back.ok());
    CHECK(back.value() == d);
  }
}

TEST_CASE("working sets survive the way through a file, and a list that cannot be is refused with its line") {
  const std::string sets = "working_sets:\n"
                           "  - {mib: 8, linear_gb_per_s: 120, attention_gb_per_s: 60, spread: 0.1}\n"
                           "  - {mib: 256, linear_gb_per_s: 30, attention_gb_per_s: 25, spread: 0.4}\n";
  const Device device = device_from_yaml(file_with(sets)).or_throw("made");
  REQUIRE(device.working_sets.size() == 2);
  CHECK(device.working_sets[1] == WorkingSet{256, 30, 25, 0.4});
  CHECK(device_from_yaml(device_to_yaml(device)).value() == device);
  std::string falling = sets;
  falling.replace(falling.find("256"), 3, "4");
  CHECK(problem_with(falling) == "line 10: working_sets must ascend in mib, found 4 after 8");
  CHECK(problem_with("working_sets: []\n").find("must be a list of 1 to 16 sizes") != std::string::npos);
  CHECK(problem_with("working_sets:\n  - {mib: 8}\n").find("has no 'linear_gb_per_s'") != std::string::npos);
}

TEST_CASE("a device can be given by the path of a file") {
  const auto path = std::filesystem::temp_directory_path() / "kvroof-device-test.yaml";
  std::ofstream(path) << file_with("");
  const Device d = find_device(path.string(), kCatalog);
  std::filesystem::remove(path);
  CHECK(d.name == "mine");
  CHECK(d.bandwidth().value == 2000e9);
  CHECK(d.fact(F::kAttentionFloorUs).has_value());
}

TEST_CASE("a device is known by its name in any case") {
  const std::filesystem::path catalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
  CHECK(find_device("L40S", catalog).name == "l40s");
  CHECK(find_device("RTX-4090", catalog).name == "rtx-4090");
}

TEST_CASE("a device is known by its other names, its words in any order") {
  const std::filesystem::path catalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
  CHECK(find_device("NVIDIA H100 80GB HBM3", catalog).name == "h100-sxm");
  CHECK(find_device("A100 80GB PCIe", catalog).name == "a100-pcie-80g");
  for (const char* name : {"RTX4090", "RTX 4090", "4090"}) CHECK(find_device(name, catalog).name == "rtx-4090");
  CHECK(find_device("RTX 4070", catalog).name == "rtx-4070");  // and not one of two that begin so
  CHECK(find_device("NVIDIA GeForce RTX 4090 Laptop GPU", catalog).name == "rtx-4090-laptop");
  CHECK(find_device("NVIDIA GB10", catalog).name == "dgx-spark");
}

TEST_CASE("an unknown device is answered with the nearest name") {
  CHECK(message_of("h2000").find("unknown device 'h2000'; did you mean h200?") == 0);
  CHECK(message_of("h100") == "unknown device 'h100'; did you mean h100-nvl or h100-pcie or h100-sxm?");
  CHECK(message_of("rtx409").find("did you mean rtx-4090?") != std::string::npos);
  CHECK(message_of("./nothing.yaml") == "./nothing.yaml: no such device file");
}

TEST_CASE("values that no device can have are refused") {
  CHECK(problem_with("").empty());
  CHECK(problem_with("  power_w: {value: -1, provenance: datasheet, source: me}\n").find("power_w is -1") !=
        std::string::npos);
  CHECK(problem_with("  l2_mib: {value: .nan, provenance: datasheet, source: me}\n").find("l2_mib") !=
        std::string::npos);
  CHECK(problem_with("  l2_mib: {value: 50 MB, provenance: datasheet, source: me}\n").find("must be a number") !=
        std::string::npos);
  CHECK(problem_with("  linear_fraction: {value: 1.2, provenance: measured, source: me}\n")
            .find("linear_fraction is 1.2") != std::string::npos);
  // A bus of 5120 bit at 3186 Mbit/s gives 2039 GB/s: 3186 MHz doubled once more contradicts the bandwidth.
  CHECK(problem_with("  bus_bits: {value: 5120, provenance: datasheet, source: me}\n"
                     "  pin_mbit_per_s: {value: 6372, provenance: datasheet, source: me}\n")
            .find("line 6: bandwidth_gb_per_s is 2000") != std::string::npos);
  CHECK(problem_with("  peak_fp8_tflops: {value: 1248, provenance: datasheet, source: me}\n").find("sparse") !=
        std::string::npos);
  CHECK(problem_with("  memory_gb: {value: 40, provenance: datasheet, source: me}\n").find("usable_mib") !=
        std::string::npos);
}

TEST_CASE("a device file is read strictly") {
  CHECK(problem_with("  l2_mb: {value: 50, provenance: datasheet, source: me}\n").find("did you mean l2_mib?") !=
        std::string::npos);
  CHECK(problem_with("  l2_mib: {value: 50, provenance: datasheet}\n").find("'source' is missing") !=
        std::string::npos);
  CHECK(problem_with("  l2_mib: {value: 50, provenance: guessed, source: me}\n")
            .find("expected one of datasheet, measured") != std::string::npos);
  CHECK(problem_with("  l2_mib: 50\n").find("must be a map") != std::string::npos);
  CHECK(problem_with("prize: 3\n").find("did you mean price?") != std::string::npos);
  CHECK_FALSE(device_from_yaml("").ok());
  CHECK_FALSE(device_from_yaml("[1, 2").ok());
  CHECK_FALSE(device_from_yaml("name: [a]\n").ok());
  CHECK_FALSE(device_from_yaml("name: x\nkind: gpu\nmemory_type: hbm\nfacts: {}\n").ok());
  CHECK(problem_with("# a comment\n  usable_mib: {value: 1000, provenance: measured, source: me}\n").find("twice") !=
        std::string::npos);
}

}  // namespace kvroof
