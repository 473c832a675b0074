// kvroof devices: GPUs and CPUs of the catalog, each number with its source.
#include <fmt/format.h>

#include "apps/catalog/device_facts.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "sim/device/device.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
using F = DeviceField;

Table list_devices(const std::filesystem::path& catalog) {
  Table table;
  table.columns = {{"device", "device", false},
                   {"name", "title", false},
                   {"usable memory (GiB)", "usable_bytes"},
                   {"bandwidth (GB/s)", "bandwidth_gb_per_s"},
                   {"dense bf16 or fp16 (TFLOP/s)", "peak_16bit_tflops"},
                   {"L2 (MiB)", "l2_mib"},
                   {"power (W)", "power_w"},
                   {"price ($/h)", "price_usd_per_hour", false}};
  for (const std::string& name : catalog_device_names(catalog)) {
    const Device d = find_device(name, catalog);
    const auto value = [&](F f) { return d.fact(f) ? fmt::format("{}", d.fact(f)->value) : std::string(); };
    const std::string peak = fmt::format("{:g}", d.peak(DType::kBF16).value / 1e12);
    const std::string range =
        d.price ? fmt::format("{:.2f}-{:.2f}", d.price->low_usd_per_hour, d.price->high_usd_per_hour) : "";
    const std::string price = d.price ? fmt::format("{} ({})", range, d.price->date) : "";
    table.rows.push_back({d.name, d.title, fmt::format("{:.1f}", gib(d.usable_memory())), value(F::kBandwidthGbPerS),
                          peak, value(F::kL2Mib), value(F::kPowerW), range});
    table.raw_rows.push_back({d.name, d.title, std::to_string(d.usable_memory().value), value(F::kBandwidthGbPerS),
                              peak, value(F::kL2Mib), value(F::kPowerW), price});
  }
  return table;
}

int run_devices(const Arguments& arguments) {
  const std::filesystem::path catalog = data_folder() / "catalog";
  if (asks_for_list(arguments)) {
    write_table(arguments, list_devices(catalog));
    return 0;
  }
  const std::string& word = arguments.positional[0];
  if (word != "show") throw not_show("devices", word, catalog_device_names(catalog));
  if (arguments.positional.size() < 2) {
    throw usage_error("devices show: a name or a file is missing").note("`kvroof devices` lists the names");
  }
  write_table(arguments, device_facts(find_device(arguments.positional[1], catalog)));
  return 0;
}

void describe_devices(po::options_description_easy_init) {}

}  // namespace

Command devices_command() {
  return {"devices",
          "GPUs and CPUs, each number with its source",
          "[list | show NAME|FILE]",
          "  kvroof devices\n"
          "  kvroof devices show h200\n"
          "  kvroof devices show cpu.yaml --format json",
          describe_devices,
          run_devices,
          0,
          2};
}

}  // namespace kvroof
