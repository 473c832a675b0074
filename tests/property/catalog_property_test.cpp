// Every pair of devices of the catalog: one that is as good in all that is printed of both is predicted no worse.
#include <algorithm>
#include <filesystem>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

using F = DeviceField;
constexpr double kMostDevices = 4;  // of a run below
const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

// As good in all that vendors print of both, and in what a process can allocate; able to all that the other is. Of one
// architecture also in power, which its clock under load follows.
bool at_least_as_good(const Device& a, const Device& b) {
  constexpr std::array kPrinted = {F::kUsableMib,      F::kBandwidthGbPerS, F::kPeakFp32Tflops, F::kPeakBf16Tflops,
                                   F::kPeakFp16Tflops, F::kPeakFp8Tflops,   F::kPeakFp4Tflops,  F::kPeakInt8Tops,
                                   F::kL2Mib,          F::kSmCount,         F::kLinkGbPerS,     F::kPcieGbPerS};
  const auto as_good = [&](F f) { return !a.fact(f) || !b.fact(f) || a.value(f) >= b.value(f); };
  for (const F f : {F::kPeakBf16Tflops, F::kPeakFp8Tflops, F::kPeakFp4Tflops, F::kPeakInt8Tops, F::kLinkGbPerS}) {
    if (b.fact(f) && !a.fact(f)) return false;
  }
  const auto reach = [](const Device& d, F f, double all) { return d.fact(f) ? d.value(f) : all; };
  if (reach(a, F::kPeerAccess, 1) < reach(b, F::kPeerAccess, 1)) return false;
  const auto joined = [&](const Device& d) { return std::min(reach(d, F::kLinkDevices, kMostDevices), kMostDevices); };
  if (joined(a) < joined(b)) return false;
  return std::all_of(kPrinted.begin(), kPrinted.end(), as_good) &&
         (a.architecture != b.architecture || as_good(F::kPowerW));
}

struct CatalogRun {
  const char *model, *engine, *weights;
  std::uint32_t prompt, tensor_parallel;

  // Whether both devices run it by the same kernels. A model of 0.1 B waits for starts, which are longer on HBM boards
  // in the tables of kernels, and one of 1 B too where one board is a TPU, whose programs launch none; a type that one
  // of them lacks has other kernels there; 4-bit weights are unpacked by kernels for multiprocessors, each vendor's own
  // (and large products reach 0.51 of MI300X's peak, 0.80 of H800's).
  [[nodiscard]] bool compares(const Device& a, const Device& b) const {
    if (std::string_view(model) == "gpt2") return a.memory_type == b.memory_type && a.vendor == b.vendor;
    if (std::string_view(model) == "llama-3.2-1b") return (a.architecture == "TPU") == (b.architecture == "TPU");
    if (std::string_view(weights) == "fp8") {
      return a.fact(F::kPeakFp8Tflops).has_value() == b.fact(F::kPeakFp8Tflops).has_value();
    }
    const auto clocked = [](const Device& d) { return d.fact(F::kSmCount) && d.fact(F::kBoostMhz); };
    return std::string_view(weights) != "int4" || (clocked(a) && clocked(b) && a.vendor == b.vendor);
  }
};
constexpr std::array kCatalogRuns = {
    CatalogRun{"llama-3-8b", "kvroof", "bf16", 4096, 1},   CatalogRun{"llama-3-8b", "kvroof", "fp8", 512, 1},
    CatalogRun{"llama-3.2-1b", "kvroof", "bf16", 128, 1},  CatalogRun{"gpt2", "kvroof", "bf16", 64, 1},
    CatalogRun{"mixtral-8x7b", "vllm", "int4", 1024, 1},   CatalogRun{"llama-2-13b", "tensorrt-llm", "bf16", 2048, 2},
    CatalogRun{"opt-6.7b", "huggingface", "f16", 512, 1},  CatalogRun{"llama-2-7b", "llama-cpp", "int4", 512, 1},
    CatalogRun{"llama-3-70b", "vllm", "bf16", 1024, 4}};

}  // namespace

TEST_CASE("of two devices of the catalog, one that is as good in every printed fact is never worse in what follows") {
  constexpr double kRounding = 1 + 1e-9;
  std::vector<Device> devices;
  for (const std::string& name : catalog_device_names(kCatalog)) devices.push_back(find_device(name, kCatalog));
  int pairs = 0;
  for (const CatalogRun& run : kCatalogRuns) {
    const ModelShape shape = find_model_shape(run.model, kCatalog);
    const ResidencySummary r = full_attention_summary(shape, run.prompt, 128);
    Deployment deployment(TrafficTypes{DType::kBF16, DType::kF16}, *parse_weight_format(run.weights));
    deployment.tensor_parallel = run.tensor_parallel;
    const EngineProfile engine = find_engine_profile(run.engine, kCatalog);
    for (const Device& a : devices) {
      for (const Device& b : devices) {
        if (&a == &b || !at_least_as_good(a, b) || !run.compares(a, b)) continue;
        ++pairs;
        const CostModel better(shape, deployment, a, engine), lesser(shape, deployment, b, engine);
        INFO(a.name << " beside " << b.name << ": " << run.model << " " << run.weights << " under " << run.engine);
        const std::uint64_t most = better.memory().largest_batch(r), least = lesser.memory().largest_batch(r);
        CHECK(most >= least);
        for (const std::uint64_t batch : {1UL, 8UL, 64UL, std::max(most, 1UL)}) {
          INFO("batch " << batch);
          CHECK(better.predict(r, batch).step.value <= lesser.predict(r, batch).step.value * kRounding);
        }
        CHECK(better.prefill(r, 1).value <= lesser.prefill(r, 1).value * kRounding);
        // Of a larger batch less of the activations stays in the cache, and one sequence more may need a larger graph.
        if (least == 0 || !engine.graph_sizes.empty()) continue;
        CHECK(better.predict(r, most).tokens_per_s.value * 1.01 >= lesser.predict(r, least).tokens_per_s.value);
      }
    }
  }
  CHECK(pairs > 4000);
}

}  // namespace kvroof
