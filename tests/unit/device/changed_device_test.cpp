#include "sim/device/changed_device.hpp"

#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

using F = DeviceField;
const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

std::string message_of(const std::string& name) {
  try {
    find_device(name, kCatalog);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a fact of a device is changed to a number or a multiple of what it has, without an interval of its own") {
  const Device h200 = find_device("h200", kCatalog);
  const Device changed = find_device("H200:bandwidth_gb_per_s=8000:l2_mib=2x:sm_count=144", kCatalog);
  CHECK(changed.name == "h200:bandwidth_gb_per_s=8000:l2_mib=2x:sm_count=144");
  CHECK(changed.title == h200.title + " with bandwidth_gb_per_s=8000, l2_mib=2x, sm_count=144");
  CHECK(changed.value(F::kBandwidthGbPerS) == 8000);
  CHECK(changed.value(F::kL2Mib) == 2 * h200.value(F::kL2Mib));
  CHECK(changed.value(F::kSmCount) == 144);
  for (const F field : {F::kBandwidthGbPerS, F::kL2Mib, F::kSmCount}) {
    CHECK(changed.fact(field)->provenance == Provenance::kGiven);
    CHECK(changed.fact(field)->spread == 0);
  }
  CHECK(changed.price == h200.price);
  CHECK(device_from_yaml(device_to_yaml(changed)).or_throw("written") == changed);
}

TEST_CASE("once what it has changes no value of a device, but what was measured is a prior and no narrower") {
  for (const char* name : {"h200", "a100-80g", "rtx-4090", "mi300x"}) {
    INFO(name);
    const Device device = find_device(name, kCatalog);
    const Device same = find_device(std::string(name) + ":bandwidth_gb_per_s=1x", kCatalog);
    int priors = 0;
    for (const DeviceFieldInfo& info : device_fields()) {
      INFO(info.key);
      REQUIRE(same.fact(info.field).has_value() == device.fact(info.field).has_value());
      if (!device.fact(info.field)) continue;
      CHECK(same.value(info.field) == device.value(info.field));
      CHECK(same.fact(info.field)->spread >= device.fact(info.field)->spread);
      if (info.field < F::kLinearFraction) continue;
      CHECK(same.fact(info.field)->provenance == Provenance::kPrior);
      priors += device.fact(info.field)->provenance == Provenance::kMeasured;
    }
    CHECK(priors > 0);
  }
}

TEST_CASE("what says the same in other words follows a changed fact, and a fact that is given stays as given") {
  const Device h200 = find_device("h200", kCatalog);
  const Device twice = find_device("h200:bandwidth_gb_per_s=2x", kCatalog);
  CHECK(twice.value(F::kPinMbitPerS) == 2 * h200.value(F::kPinMbitPerS));
  CHECK(twice.value(F::kBusBits) == h200.value(F::kBusBits));
  CHECK(find_device("h200:bus_bits=8192", kCatalog).value(F::kBandwidthGbPerS) == 6400);  // 4800 · 8192 / 6144
  CHECK(find_device("h200:usable_mib=0.5x", kCatalog).value(F::kMemoryGb) == 70.5);
  const Device both = find_device("h200:memory_gb=192:usable_mib=180000", kCatalog);
  CHECK(both.value(F::kUsableMib) == 180000);
  CHECK(both.value(F::kMemoryGb) == 192);
}

TEST_CASE("a constant of kernels that is given stands, and of a slower memory the others reach a larger share") {
  const Device h200 = find_device("h200", kCatalog);
  CHECK(find_device("h200:linear_fraction=0.95", kCatalog).value(F::kLinearFraction) == 0.95);
  const double slow = find_device("h200:bandwidth_gb_per_s=0.5x", kCatalog).value(F::kLinearFraction);
  CHECK(slow >= h200.value(F::kLinearFraction));
  CHECK(slow * 0.5 <= h200.value(F::kLinearFraction));
}

TEST_CASE("a change that cannot be is refused with what it should be") {
  CHECK(message_of("h200:bandwidth=3") == "h200: a device has no fact 'bandwidth'; did you mean bandwidth_gb_per_s?");
  CHECK(message_of("h200:l2_mib") == "h200: 'l2_mib': expected fact=value, as in bandwidth_gb_per_s=8000");
  CHECK(message_of("h200:") == "h200: '': expected fact=value, as in bandwidth_gb_per_s=8000");
  CHECK(message_of("h200:l2_mib=-1") == "h200: l2_mib='-1': -1 is no value of a device; expected 0.01 to 16384");
  for (const char* value : {"x", "", "nan", "inf", "3y", "1,5", "2xx"}) {
    CHECK(message_of(std::string("h200:l2_mib=") + value) ==
          fmt::format("h200: l2_mib='{}': expected a number, or 1.5x for a multiple of what it has", value));
  }
  CHECK(message_of("h200:l2_mib=2:l2_mib=3") == "h200: l2_mib is given twice");
  CHECK(message_of("a10:link_gb_per_s=2x") ==
        "a10: link_gb_per_s='2x': it has no such fact to multiply; give a number");
  CHECK(message_of("h2000:l2_mib=3") == "unknown device 'h2000'; did you mean h200?");
}

TEST_CASE("facts of a file change too, but not bandwidth by size, and a file may have a colon in its name") {
  const auto folder = std::filesystem::temp_directory_path() / "kvroof-changed-device-test";
  std::filesystem::create_directories(folder);
  const std::string plain = (folder / "mine.yaml").string(), colon = (folder / "my:l2.yaml").string();
  const std::string text = "name: mine\nkind: cpu\nmemory_type: ddr\nfacts:\n"
                           "  usable_mib: {value: 8000, provenance: measured, source: me}\n"
                           "  bandwidth_gb_per_s: {value: 20, provenance: measured, source: me}\n"
                           "  peak_fp32_tflops: {value: 1, provenance: measured, source: me}\n";
  std::ofstream(plain) << text;
  std::ofstream(colon) << text << "working_sets: [{mib: 8, linear_gb_per_s: 9, attention_gb_per_s: 9, spread: 0.1}]\n";
  CHECK(find_device(plain + ":bandwidth_gb_per_s=40", kCatalog).value(F::kBandwidthGbPerS) == 40);
  CHECK(find_device(colon, kCatalog).name == "mine");
  std::filesystem::rename(colon, folder / "sizes.yaml");
  CHECK(message_of((folder / "sizes.yaml").string() + ":bandwidth_gb_per_s=40") ==
        "mine: its bandwidth was measured size by size (working_sets); change its file");
  std::filesystem::remove_all(folder);
}

}  // namespace kvroof
