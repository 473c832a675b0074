#include "sim/device/device.hpp"

#include <algorithm>

namespace kvroof {
namespace {

using F = DeviceField;
// The ranges are wide: they refuse what cannot be (or a wrong unit), not what is unusual.
constexpr std::array<DeviceFieldInfo, kDeviceFieldCount> kFields = {{
    {F::kUsableMib, "usable_mib", "usable memory (MiB)", 64, 16777216},
    {F::kMemoryGb, "memory_gb", "memory as marketed (GB)", 0.1, 20000},
    {F::kBandwidthGbPerS, "bandwidth_gb_per_s", "memory bandwidth (GB/s)", 1, 100000},
    {F::kBusBits, "bus_bits", "memory bus (bit)", 8, 65536},
    {F::kPinMbitPerS, "pin_mbit_per_s", "memory data rate of a pin (Mbit/s)", 100, 100000},
    {F::kPeakFp32Tflops, "peak_fp32_tflops", "fp32 (TFLOP/s, dense)", 0.001, 100000},
    {F::kPeakTf32Tflops, "peak_tf32_tflops", "tf32 (TFLOP/s, dense)", 0.001, 100000},
    {F::kPeakBf16Tflops, "peak_bf16_tflops", "bf16 (TFLOP/s, dense)", 0.001, 100000},
    {F::kPeakFp16Tflops, "peak_fp16_tflops", "fp16 (TFLOP/s, dense)", 0.001, 100000},
    {F::kPeakFp8Tflops, "peak_fp8_tflops", "fp8 (TFLOP/s, dense)", 0.001, 100000},
    {F::kPeakFp4Tflops, "peak_fp4_tflops", "fp4 (TFLOP/s, dense)", 0.001, 100000},
    {F::kPeakInt8Tops, "peak_int8_tops", "int8 (TOP/s, dense)", 0.001, 100000},
    {F::kL2Mib, "l2_mib", "last-level cache (MiB)", 0.01, 16384},
    {F::kSmCount, "sm_count", "multiprocessors or cores", 1, 65536},
    {F::kBoostMhz, "boost_mhz", "boost clock (MHz)", 100, 20000},
    {F::kLinkGbPerS, "link_gb_per_s", "device link, both directions (GB/s)", 0.1, 50000},
    {F::kPcieGbPerS, "pcie_gb_per_s", "PCIe, one direction (GB/s)", 0.1, 5000},
    {F::kHostGbPerS, "host_gb_per_s", "reads of the host's memory (GB/s)", 0.1, 50000},
    {F::kLinkDevices, "link_devices", "devices that the link joins", 2, 1024},
    {F::kPeerAccess, "peer_access", "reads other devices over PCIe (0 or 1)", 0, 1},
    {F::kPowerW, "power_w", "power (W)", 1, 50000},
    {F::kTileRows, "tile_rows", "rows that products of fewer are computed for", 1, 256},
    {F::kLinearFraction, "linear_fraction", "weight reads, share of bandwidth", 0.01, 1},
    {F::kLinearT0Us, "linear_t0_us", "start-up of a matrix product (us)", 0, 10000},
    {F::kAttentionFraction, "attention_fraction", "attention reads, share of bandwidth", 0.01, 1},
    {F::kAttentionFloorUs, "attention_floor_us", "start-up of an attention call (us)", 0, 10000},
    {F::kElementwiseUs, "elementwise_us", "element-wise work of a layer (us)", 0, 10000},
    {F::kMatmulFraction, "matmul_fraction", "large products, share of peak", 0.01, 1},
    {F::kAttentionCallUs, "attention_call_us", "start-up of an attention call by itself (us)", 0, 10000},
    {F::kAttentionColdUs, "attention_cold_us", "more of such a call in a cold cache (us)", 0, 10000},
    {F::kFp4Fraction, "fp4_fraction", "fp4 products, share of peak", 0.01, 1},
    {F::kFp4WalkUs, "fp4_walk_us", "fp4 products, each 1,024 columns (us)", 0, 100},
}};

static_assert([] {
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (static_cast<std::size_t>(kFields[i].field) != i) return false;
  }
  return true;
}());

constexpr double kMiB = 1024.0 * 1024.0;

}  // namespace

std::span<const DeviceFieldInfo> device_fields() { return kFields; }

Bytes Device::usable_memory() const { return Bytes(static_cast<std::uint64_t>(value(F::kUsableMib) * kMiB)); }

BytesPerSecond Device::bandwidth() const { return BytesPerSecond(value(F::kBandwidthGbPerS) * kGB); }

FlopsPerSecond Device::peak(DType type) const {
  // A type without a rate of its own is computed in the next one of the list.
  std::array<F, 3> order = {F::kPeakFp32Tflops, F::kPeakBf16Tflops, F::kPeakFp16Tflops};
  if (type == DType::kBF16) order = {F::kPeakBf16Tflops, F::kPeakFp16Tflops, F::kPeakFp32Tflops};
  if (type == DType::kF16) order = {F::kPeakFp16Tflops, F::kPeakBf16Tflops, F::kPeakFp32Tflops};
  for (const F f : order) {
    if (fact(f)) return FlopsPerSecond(fact(f)->value * 1e12);
  }
  check(false, "a device has a peak for fp32, fp16 or bf16");
  return {};
}

void fill_achieved(Device& device, const Device& defaults) {
  for (std::size_t i = static_cast<std::size_t>(F::kLinearFraction); i < kDeviceFieldCount; ++i) {
    if (!device.facts[i]) device.facts[i] = defaults.facts[i];
  }
}

void fill_from_silicon(Device& device, const Device& measured, const Device& defaults) {
  for (std::size_t i = static_cast<std::size_t>(F::kLinearFraction); i < kDeviceFieldCount; ++i) {
    if (device.facts[i] || !measured.facts[i]) continue;
    Fact fact = *measured.facts[i];
    if (fact.provenance == Provenance::kMeasured) {
      fact.provenance = Provenance::kPrior;
      fact.source = "as on " + measured.name + ", the same silicon: " + fact.source;
      if (defaults.facts[i]) fact.spread = std::max(fact.spread, defaults.facts[i]->spread);
    }
    const F field = device_fields()[i].field;
    const bool of_bandwidth = field == F::kLinearFraction || field == F::kAttentionFraction;
    const double slower = measured.bandwidth().value / device.bandwidth().value;
    if (of_bandwidth && slower > 1 && defaults.facts[i]) {
      fact.value = std::min(std::max(fact.value, defaults.facts[i]->value), fact.value * slower);
    }
    device.facts[i] = fact;
  }
}

std::string_view name_of(DeviceKind kind) { return kind == DeviceKind::kGpu ? "gpu" : "cpu"; }

std::string_view name_of(MemoryType type) {
  constexpr std::array<std::string_view, 3> kNames = {"hbm", "gddr", "ddr"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view name_of(Provenance provenance) {
  constexpr std::array<std::string_view, 4> kNames = {"datasheet", "measured", "prior", "given"};
  return kNames[static_cast<std::size_t>(provenance)];
}

}  // namespace kvroof
