// A GPU or CPU as a list of facts: each number with its unit, its source and whether it was printed or measured.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/dtype.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace kvroof {

enum class DeviceKind : std::uint8_t { kGpu, kCpu };
enum class MemoryType : std::uint8_t { kHbm, kGddr, kDdr };
// A prior is a judgement: no one measured this device. What is given was asked for (changed_device.hpp).
enum class Provenance : std::uint8_t { kDatasheet, kMeasured, kPrior, kGiven };

// What a device file may say; its table in device.cpp gives the key, the unit and the plausible range of each.
enum class DeviceField : std::uint8_t {
  kUsableMib,        // memory that a process can allocate
  kMemoryGb,         // as marketed
  kBandwidthGbPerS,  // peak of the memory
  kBusBits,          // width of the memory bus
  kPinMbitPerS,      // data rate of one pin of the bus: bandwidth = rate · bits / 8
  kPeakFp32Tflops,   // all peaks: dense, without structured sparsity
  kPeakTf32Tflops,
  kPeakBf16Tflops,  // accumulated in fp32
  kPeakFp16Tflops,  // accumulated in fp32
  kPeakFp8Tflops,   // accumulated in fp32
  kPeakFp4Tflops,
  kPeakInt8Tops,
  kL2Mib,    // last-level cache of a CPU
  kSmCount,  // cores of a CPU
  kBoostMhz,
  kLinkGbPerS,   // to other devices, both directions together
  kPcieGbPerS,   // one direction
  kHostGbPerS,   // of the host's memory, that a device reads, where a link in place of PCIe or that memory bounds it
  kLinkDevices,  // that the link joins: a bridge of a few boards, a server, a rack; without: as many as there are
  kPeerAccess,   // 0: no device reads another's memory over PCIe, all goes through the host's; without or 1: it does
  kPowerW,
  kTileRows,  // rows that libraries compute products of fewer for, where that takes longer than reading
  // What kernels achieve: the constants of time = t0 + bytes / (fraction · bandwidth).
  kLinearFraction,     // share of bandwidth that reading large weight matrices reaches
  kLinearT0Us,         // start-up of one matrix product
  kAttentionFraction,  // share of bandwidth that decode attention reaches on large caches
  kAttentionFloorUs,   // start-up of one decode attention call
  kElementwiseUs,      // norms, rotation, activation and residuals of one layer together, small batch
  kMatmulFraction,     // share of the dense peak that the best large product reaches
  kAttentionCallUs,    // start-up of a decode attention call by itself, as tables of kernels time it, in a warm cache
  kAttentionColdUs,    // what such a call takes longer when none of its rows lie in the last-level cache
  kFp4Fraction,        // share of the dense fp4 peak that products reach, quantising their inputs included
  kFp4WalkUs,          // what an fp4 product takes longer for each 1,024 columns that its blocks walk along
};
inline constexpr std::size_t kDeviceFieldCount = 32;

struct DeviceFieldInfo {
  DeviceField field;
  std::string_view key;    // in files and JSON; carries the unit
  std::string_view label;  // in tables
  double lowest, highest;  // physically possible values
};
std::span<const DeviceFieldInfo> device_fields();

struct Fact {
  double value = 0;  // in the unit that the key of its field names
  Provenance provenance = Provenance::kDatasheet;
  std::string source;
  double spread = 0;  // relative half-width of an 80 % interval around the value; 0 for what is certain
  friend bool operator==(const Fact&, const Fact&) = default;
};

struct Price {
  double low_usd_per_hour = 0;
  double high_usd_per_hour = 0;
  std::string date;  // YYYY-MM
  std::string source;
  friend bool operator==(const Price&, const Price&) = default;
};

// What decode steps of this machine's engine read a second when what they read, over and over, is so large.
struct WorkingSet {
  double mib = 0;
  double linear_gb_per_s = 0;     // weights, by products
  double attention_gb_per_s = 0;  // rows of the KV cache
  double spread = 0;              // as of a fact
  friend bool operator==(const WorkingSet&, const WorkingSet&) = default;
};
inline constexpr std::size_t kMostWorkingSets = 16;

struct Device {
  std::string name;   // as options spell it: h200, rtx-4090
  std::string title;  // as its vendor spells it
  std::string vendor;
  std::string architecture;
  std::string kernels_as;  // a device of the same silicon, for what was measured there and not here; or none
  DeviceKind kind = DeviceKind::kGpu;
  MemoryType memory_type = MemoryType::kHbm;
  std::array<std::optional<Fact>, kDeviceFieldCount> facts;
  std::optional<Price> price;
  // By ascending size; empty: reads reach the same share of the bandwidth at every size. Measured, of CPUs.
  std::vector<WorkingSet> working_sets;

  [[nodiscard]] const std::optional<Fact>& fact(DeviceField f) const { return facts[static_cast<std::size_t>(f)]; }
  [[nodiscard]] std::optional<Fact>& fact(DeviceField f) { return facts[static_cast<std::size_t>(f)]; }
  // The value of a field that every device has (see device_from_yaml), or that the caller knows to be there.
  [[nodiscard]] double value(DeviceField f) const { return facts[static_cast<std::size_t>(f)]->value; }

  [[nodiscard]] Bytes usable_memory() const;
  [[nodiscard]] BytesPerSecond bandwidth() const;
  // Dense rate of products of this type; the next wider type that has a rate when it has none of its own.
  [[nodiscard]] FlopsPerSecond peak(DType type) const;
  friend bool operator==(const Device&, const Device&) = default;
};

// Reads a device file. Strict: unknown keys, missing sources, and values that no device can have are refused.
// Required: name, kind, memory_type, usable_mib, bandwidth_gb_per_s and a peak for fp32, fp16 or bf16.
Result<Device> device_from_yaml(std::string_view text);
// A file of that form that may hold only some facts: the defaults of a memory type.
Result<Device> achieved_from_yaml(std::string_view text);
// The same form, for calibrations; device_from_yaml gives back an equal device.
std::string device_to_yaml(const Device& device);
// Fills the achieved fields (linear_fraction … fp4_walk_us) that the device does not have.
void fill_achieved(Device& device, const Device& defaults);
// The same from a device of the same silicon: what was measured there is a prior here, as wide as one of `defaults`.
// The same multiprocessors fill a slower memory no worse: its share is that of `defaults` where this is larger, but its
// rate not above the measured one.
void fill_from_silicon(Device& device, const Device& measured, const Device& defaults);

// catalog/devices/<name>.yaml, or a file of that form (one with a '/' or ending in .yaml or .yml), completed from the
// device that its kernels_as names and from catalog/memory/<memory type>.yaml; either may be followed by changes of its
// facts (changed_device.hpp). Throws Error (usage) with "did you mean" for an unknown name.
Device find_device(const std::string& name_or_path, const std::filesystem::path& catalog);
// Names of all catalog entries, sorted.
std::vector<std::string> catalog_device_names(const std::filesystem::path& catalog);

std::string_view name_of(DeviceKind kind);
std::string_view name_of(MemoryType type);
std::string_view name_of(Provenance provenance);

}  // namespace kvroof
