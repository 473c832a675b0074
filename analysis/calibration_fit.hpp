// Facts of a device from what its kernels took: start-ups, and shares of the memory's bandwidth and of the peak.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/device/device.hpp"

namespace kvroof {

// Products and attention within a run of an engine, and calls of attention by themselves (tables of kernels).
enum class KernelKind : std::uint8_t { kProduct, kAttention, kAttentionCall };

// Best runs of equal work differ by so much: what is above this share of a limit did not do what it says.
inline constexpr double kAboveLimit = 1.02;

struct KernelSample {
  KernelKind kind = KernelKind::kProduct;
  double bytes = 0;    // that it had to move
  double flops = 0;    // 0: not known
  double seconds = 0;
  std::string where;   // for people: the line of a table, the launch of a trace
};

// What the samples of one kind said.
struct KernelFit {
  KernelKind kind = KernelKind::kProduct;
  std::size_t samples = 0;
  double test_error = 0;               // mean, of every other sample after a fit to the rest
  std::vector<DeviceField> facts;      // that were set
  std::string refused;                 // why none were
  std::string no_matmul;               // why matmul_fraction was not, of products
};

// Sets the achieved facts of `device` that the samples determine: t = start + bytes / (fraction · bandwidth), by least
// squares of relative errors; calls by themselves with a cold start (docs/method.md); products bound by arithmetic give
// matmul_fraction. The 80 % quantile of the untouched half's errors becomes the spread. Throws Error when a sample
// moves its bytes faster than the memory can: it was measured in a warm cache.
std::vector<KernelFit> fit_kernels(Device& device, std::span<const KernelSample> samples, const std::string& source);

// A decode step of an engine on a CPU, as a recording has it.
struct StepSample {
  double weight_bytes = 0, kv_bytes = 0, seconds = 0;
};
// linear_fraction and attention_fraction from steps of one run: the time that grows with the cache, and the rest
// without `fixed_seconds` of start-ups. The slowest tenth, when the machine did something else, does not count.
KernelFit fit_steps(Device& device, std::span<const StepSample> steps, double fixed_seconds, const std::string& source);

}  // namespace kvroof
