// Random devices, models, policies and deployments: what must hold of time, capacity and the ledger whatever they are.
#include <filesystem>
#include <random>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace kvroof {
namespace {

using F = DeviceField;
const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

// The standard fixes the numbers of this generator, not of its distributions.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : bits_(seed) {}
  double between(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits_() >> 11) / 0x1p53);
  }
  template <class T>
  const T& of(const std::vector<T>& values) {
    return values[bits_() % values.size()];
  }

 private:
  std::mt19937_64 bits_;
};

constexpr std::array kMoreIsBetter = {F::kUsableMib,       F::kBandwidthGbPerS, F::kPeakFp32Tflops,
                                      F::kPeakBf16Tflops,  F::kPeakFp16Tflops,  F::kPeakFp8Tflops,
                                      F::kPeakFp4Tflops,   F::kPeakInt8Tops,    F::kL2Mib,
                                      F::kSmCount,         F::kBoostMhz,        F::kLinkGbPerS,
                                      F::kPcieGbPerS,      F::kLinearFraction,  F::kAttentionFraction,
                                      F::kMatmulFraction};
constexpr std::array kLessIsBetter = {F::kLinearT0Us, F::kAttentionFloorUs, F::kElementwiseUs};

// Larger or faster in some facts, worse in none.
Device better_than(Device d, Draw& draw) {
  for (const F f : kMoreIsBetter) {
    if (!d.fact(f) || draw.between(0, 1) < 0.5) continue;
    const DeviceFieldInfo& info = device_fields()[static_cast<std::size_t>(f)];
    d.fact(f)->value = std::min(d.fact(f)->value * draw.between(1, 3), info.highest);
  }
  for (const F f : kLessIsBetter) {
    if (draw.between(0, 1) < 0.5) d.fact(f)->value *= draw.between(0.2, 1);
  }
  return d;
}

// A model, what a policy keeps of its cache, how it is laid out and under which engine.
struct Work {
  ModelShape shape;
  ResidencySummary residency;
  Deployment deployment;
  EngineProfile engine;
};

Work random_work(Draw& draw) {
  static const std::vector<std::string> models = {"llama-3-8b", "llama-2-13b",  "opt-6.7b",     "gpt-j-6b", "mpt-7b",
                                                  "qwen3-32b",  "mixtral-8x7b", "llama-3.1-70b", "falcon-40b"};
  static const std::vector<std::string> engines = catalog_engine_names(kCatalog);
  static const std::vector<std::string> formats = {"f16", "bf16", "fp8", "int8-wo", "int4", "nvfp4", "Q4_K_M"};
  static const std::vector<KvType> caches = {DType::kF16, DType::kI8, KvType::kInt4G64};
  const ModelShape shape = find_model_shape(draw.of(models), kCatalog);
  const synthetic::Lengths n = {static_cast<std::uint32_t>(draw.between(16, 6000)),
                                static_cast<std::uint32_t>(draw.between(1, 40))};
  const double kept = draw.between(0, 1) < 0.3 ? 1 : draw.between(0.05, 0.95);
  ResidencySummary r = kept < 1 ? summarise(synthetic::fraction(n, kept, shape.layers, shape.kv_heads))
                                : summarise(synthetic::full(n, shape.layers, shape.kv_heads));
  if (kept < 1 && draw.between(0, 1) < 0.5) {
    r.needs_probabilities = r.observes_steps = true;
    r.state_bytes_per_row = 4;
    r.decode.state_read = r.decode.state_written = 4 * r.decode.attended;
  }
  Deployment deployment(TrafficTypes{DType::kBF16, draw.of(caches)}, *parse_weight_format(draw.of(formats)));
  deployment.tensor_parallel = draw.of(std::vector<std::uint32_t>{1, 1, 2, 4});
  if (!deployment_problem(shape, deployment).empty()) deployment.tensor_parallel = 1;
  return {shape, r, deployment, find_engine_profile(draw.of(engines), kCatalog)};
}

std::string text_of(const Work& w, const Device& d) {
  return fmt::format("{} {} over {} on {} under {}, prompt {}, keeps {}", w.shape.name, w.deployment.weights.name,
                     w.deployment.tensor_parallel, d.name, w.engine.name, w.residency.prompt, w.residency.peak_rows);
}

}  // namespace

TEST_CASE("a device that is larger or faster in some facts and worse in none is never worse: 2,000 random pairs") {
  Draw draw(20240917);
  const std::vector<std::string> names = catalog_device_names(kCatalog);
  for (int pair = 0; pair < 2000; ++pair) {
    const Device base = find_device(draw.of(names), kCatalog);
    const Device better = better_than(base, draw);
    const Work w = random_work(draw);
    const CostModel before(w.shape, w.deployment, base, w.engine), after(w.shape, w.deployment, better, w.engine);
    INFO(pair << ": " << text_of(w, base));
    const std::uint64_t held = before.memory().largest_batch(w.residency);
    REQUIRE(after.memory().largest_batch(w.residency) >= held);
    constexpr double kRounding = 1 + 1e-12;
    for (const std::uint64_t batch : {std::uint64_t{1}, std::uint64_t{37}, std::max<std::uint64_t>(held, 1)}) {
      REQUIRE(after.predict(w.residency, batch).tokens_per_s.value * kRounding >=
              before.predict(w.residency, batch).tokens_per_s.value);
      REQUIRE(after.prefill(w.residency, batch).value <= before.prefill(w.residency, batch).value * kRounding);
    }
  }
}

TEST_CASE("the ledger's lines add up, fit at the largest batch and not at one more: 1,000 random deployments") {
  Draw draw(7);
  const std::vector<std::string> names = catalog_device_names(kCatalog);
  int limited_by_memory = 0;
  for (int i = 0; i < 1000; ++i) {
    const Device device = find_device(draw.of(names), kCatalog);
    const Work w = random_work(draw);
    const CostModel cost(w.shape, w.deployment, device, w.engine);
    INFO(i << ": " << text_of(w, device));
    const std::uint64_t held = cost.memory().largest_batch(w.residency);
    if (held > 0) REQUIRE(cost.memory().ledger(w.residency, held).fits());
    if (static_cast<double>(held) >= w.engine.largest_batch) continue;  // its scheduler takes no more
    REQUIRE_FALSE(cost.memory().ledger(w.residency, held + 1).fits());
    limited_by_memory += held > 0 ? 1 : 0;
    const MemoryLedger m = cost.memory().ledger(w.residency, held + 1);
    REQUIRE(m.total() == m.weights + m.kv_allocated + m.policy_state + m.activations + m.prefill_transient +
                             m.beam_copies + m.reserve);
  }
  CHECK(limited_by_memory > 300);
}

TEST_CASE("no step reads its cache faster than the memory's peak, and more cache takes no less: 1,000 random works") {
  Draw draw(31);
  const std::vector<std::string> names = catalog_device_names(kCatalog);
  for (int i = 0; i < 1000; ++i) {
    const Device device = find_device(draw.of(names), kCatalog);
    const Work w = random_work(draw);
    const CostModel cost(w.shape, w.deployment, device, w.engine);
    INFO(i << ": " << text_of(w, device));
    const Prediction p = cost.predict(w.residency, 4);
    const double devices = w.deployment.tensor_parallel;
    const double cache = static_cast<double>(p.traffic.bytes[Cause::kKvRead]) / devices;
    REQUIRE(p.step.value > cache / device.bandwidth().value);
    ResidencySummary longer = w.residency;
    longer.decode.attended += longer.decode.attended / 3 + 1;
    // A host that launches more slowly than the device computes hides it.
    REQUIRE(cost.predict(longer, 4).step.value >= p.step.value * (1 - 1e-12));
    if (w.engine.graphs) REQUIRE(cost.predict(longer, 4).step.value > p.step.value);
    REQUIRE(p.step.low95 > 0);
    REQUIRE(p.step.low95 <= p.step.low80);
    REQUIRE(p.step.high80 <= p.step.high95);
  }
}

}  // namespace kvroof
