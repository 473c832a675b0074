// A CPU that reads small models from its cache: bandwidth as a function of what a step cycles through.
#include <cmath>
#include <filesystem>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

constexpr double kMiB = 1 << 20;

// Nothing but reading costs time on it.
Device machine(std::vector<WorkingSet> sets) {
  Device device = device_from_yaml(
                      "name: made\nkind: cpu\nmemory_type: ddr\nfacts:\n"
                      "  usable_mib: {value: 65536, provenance: measured, source: made}\n"
                      "  bandwidth_gb_per_s: {value: 20, provenance: measured, source: made}\n"
                      "  peak_fp32_tflops: {value: 10000, provenance: measured, source: made}\n"
                      "  linear_fraction: {value: 0.5, provenance: measured, source: made, spread: 0.1}\n"
                      "  linear_t0_us: {value: 0, provenance: measured, source: made}\n"
                      "  attention_fraction: {value: 0.25, provenance: measured, source: made, spread: 0.1}\n"
                      "  attention_floor_us: {value: 0, provenance: measured, source: made}\n"
                      "  elementwise_us: {value: 0, provenance: measured, source: made}\n"
                      "  matmul_fraction: {value: 1, provenance: measured, source: made}\n"
                      "  attention_call_us: {value: 0, provenance: measured, source: made}\n"
                      "  attention_cold_us: {value: 0, provenance: measured, source: made}\n")
                      .or_throw("made");
  device.working_sets = std::move(sets);
  return device;
}

Prediction step_on(const Device& device) {
  const auto catalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
  const ModelShape shape = find_model_shape("tinyllama-1.1b", catalog);
  const CostModel cost(shape, TrafficTypes{DType::kBF16, DType::kBF16}, device, find_engine_profile("cpu", catalog));
  return cost.predict(full_attention_summary(shape, 1024, 2), 1);
}

double linear_seconds(const Prediction& p) { return p.terms[static_cast<std::size_t>(CostTerm::kLinear)].value; }
double attention_seconds(const Prediction& p) { return p.terms[static_cast<std::size_t>(CostTerm::kAttention)].value; }

}  // namespace

TEST_CASE("what slows one part of a step on a CPU slows all: half-widths add up there, and their squares on a GPU") {
  const auto half_width = [](DeviceKind kind) {
    Device device = machine({});
    device.kind = kind;
    device.fact(DeviceField::kLinearFraction)->spread = device.fact(DeviceField::kAttentionFraction)->spread = 0.4;
    const Prediction p = step_on(device);
    const double linear = linear_seconds(p) / p.step.value, attention = attention_seconds(p) / p.step.value;
    CHECK(attention > 0.02);  // activations that pass through memory are left out below
    const double host = p.terms[static_cast<std::size_t>(CostTerm::kHost)].value / p.step.value;
    const double sum = 0.4 * linear + 0.4 * attention + 0.3 * host;
    const double squares = std::hypot(0.4 * linear, 0.4 * attention, 0.3 * host);
    CHECK(p.step.high80 / p.step.value - 1 ==
          Approx(std::hypot(kind == DeviceKind::kCpu ? sum : squares, 0.05)).epsilon(0.01));
    return p.step.high80 / p.step.value;
  };
  CHECK(half_width(DeviceKind::kCpu) > half_width(DeviceKind::kGpu));
}

TEST_CASE("a device without working sets reads at its share of the bandwidth, whatever the size") {
  const Prediction p = step_on(machine({}));
  CHECK(linear_seconds(p) == Approx(static_cast<double>(p.traffic.bytes[Cause::kWeights]) / 10e9).epsilon(1e-3));
}

TEST_CASE("weights and cache are read at the rates of the set that both make, and never beyond the ends of the list") {
  const Prediction plain = step_on(machine({}));
  const auto weights = static_cast<double>(plain.traffic.bytes[Cause::kWeights]);
  const auto cache = static_cast<double>(plain.traffic.bytes[Cause::kKvRead]);
  const double moved = cache + static_cast<double>(plain.traffic.bytes[Cause::kKvWrite]);
  const double mib = (weights + cache) / kMiB;
  const auto check = [&](std::vector<WorkingSet> sets, double linear, double attention) {
    const Prediction p = step_on(machine(std::move(sets)));
    CHECK(linear_seconds(p) == Approx(weights / linear).epsilon(1e-3));
    CHECK(attention_seconds(p) == Approx(moved / attention).epsilon(1e-3));
  };
  check({{mib, 80, 30, 0.1}}, 80e9, 30e9);
  check({{mib / 10, 80, 30, 0.1}, {mib / 2, 40, 20, 0.1}}, 40e9, 20e9);  // larger than all: memory
  check({{2 * mib, 80, 30, 0.1}, {9 * mib, 40, 20, 0.1}}, 80e9, 30e9);   // smaller than all: the fastest cache
  // In the middle of two sizes, by the logarithm, a byte takes the mean of both times.
  check({{mib / 4, 90, 60, 0.1}, {mib * 4, 45, 30, 0.1}}, 60e9, 40e9);
}

TEST_CASE("how far the turns of a calibration were apart is the width of a prediction") {
  const Prediction narrow = step_on(machine({{100, 80, 30, 0.05}})), wide = step_on(machine({{100, 80, 30, 0.6}}));
  CHECK(wide.step.value == Approx(narrow.step.value));
  CHECK(wide.step.high80 / wide.step.value == Approx(1.6).epsilon(0.03));
  CHECK(narrow.step.high80 / narrow.step.value < 1.1);
}

}  // namespace kvroof
