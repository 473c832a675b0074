#include "analysis/calibration_fit.hpp"

#include <cmath>
#include <filesystem>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

using F = DeviceField;

Device h100() { return find_device("h100-sxm", std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog"); }

// Kernels of a device with other constants than the catalog's: start, share of the bandwidth, cold start.
std::vector<KernelSample> made(KernelKind kind, double start_us, double share, double cold_us, int count = 24) {
  std::vector<KernelSample> samples;
  for (int i = 0; i < count; ++i) {
    const double bytes = 2e6 * std::pow(1.4, i);
    const double cold = cold_us * (1 - std::exp(-bytes / (50.0 * 1024 * 1024)));
    const double seconds = (start_us + cold) * 1e-6 + bytes / (share * 3350e9);
    samples.push_back({kind, bytes, 0, seconds, "row " + std::to_string(i)});
  }
  return samples;
}

}  // namespace

TEST_CASE("a fit gives back the constants that the samples were made with, and leaves every other fact") {
  Device device = h100();
  std::vector<KernelSample> samples = made(KernelKind::kProduct, 7, 0.7, 0);
  const auto calls = made(KernelKind::kAttentionCall, 12, 0.8, 30);
  samples.insert(samples.end(), calls.begin(), calls.end());
  const auto fits = fit_kernels(device, samples, "a table");
  REQUIRE(fits.size() == 2);
  for (const KernelFit& fit : fits) CHECK(fit.test_error < 1e-6);
  CHECK(device.value(F::kLinearT0Us) == Approx(7).epsilon(1e-3));
  CHECK(device.value(F::kLinearFraction) == Approx(0.7).epsilon(1e-3));
  CHECK(device.value(F::kAttentionCallUs) == Approx(12).epsilon(1e-3));
  CHECK(device.value(F::kAttentionColdUs) == Approx(30).epsilon(1e-3));
  CHECK(device.value(F::kAttentionFraction) == Approx(0.8).epsilon(1e-3));
  CHECK(device.fact(F::kLinearFraction)->source == "a table");
  CHECK(device.fact(F::kLinearFraction)->provenance == Provenance::kMeasured);
  CHECK(device.fact(F::kLinearFraction)->spread == Approx(0.03));  // never less
  CHECK(device.fact(F::kMatmulFraction) == h100().fact(F::kMatmulFraction));
  CHECK(device.fact(F::kAttentionFloorUs) == h100().fact(F::kAttentionFloorUs));
}

TEST_CASE("the spread is what every other sample is off by after a fit to the rest") {
  Device device = h100();
  std::vector<KernelSample> samples = made(KernelKind::kProduct, 5, 0.8, 0);
  for (std::size_t i = 1; i < samples.size(); i += 2) samples[i].seconds *= 1.2;  // the untouched half
  const auto fits = fit_kernels(device, samples, "s");
  CHECK(fits[0].test_error == Approx(1 - 1 / 1.2).epsilon(0.01));
  CHECK(device.fact(F::kLinearFraction)->spread == Approx(1 - 1 / 1.2).epsilon(0.02));
}

TEST_CASE("products bound by arithmetic give the share of the peak, and do not disturb the reading") {
  Device device = h100();
  std::vector<KernelSample> samples = made(KernelKind::kProduct, 5, 0.8, 0);
  const double seconds = 1e12 / (0.97 * 0.6 * 989e12);
  for (int i = 0; i < 10; ++i) samples.push_back({KernelKind::kProduct, 1e8, 1e12, seconds, "big"});
  (void)fit_kernels(device, samples, "s");
  CHECK(device.value(F::kMatmulFraction) == Approx(0.6).epsilon(1e-3));
  CHECK(device.value(F::kLinearFraction) == Approx(0.8).epsilon(1e-3));
  const Device before = device;
  const auto fits = fit_kernels(device, std::span(samples).first(samples.size() - 3), "s");
  CHECK(fits[0].no_matmul == "7 products are bound by arithmetic for 50 us or more, at least 8 are needed");
  CHECK(device.fact(F::kMatmulFraction) == before.fact(F::kMatmulFraction));
  for (KernelSample& s : samples) s.flops *= 3;
  CHECK_THROWS_WITH(fit_kernels(device, samples, "s"), Catch::Contains("of the dense peak of h100-sxm"));
}

TEST_CASE("samples above the memory's peak are refused with the fastest of them named") {
  Device device = h100();
  std::vector<KernelSample> samples = made(KernelKind::kAttentionCall, 5, 0.8, 0);
  samples[3].seconds = samples[3].bytes / 5000e9;
  samples[4].seconds = samples[4].bytes / 4000e9;
  CHECK_THROWS_WITH(fit_kernels(device, samples, "s"),
                    "2 of 24 samples move their bytes faster than the memory of h100-sxm can (row 3: 5000 of 3350 "
                    "GB/s)");
  CHECK(device == h100());
}

TEST_CASE("too few samples, or samples of one size, set nothing and say why") {
  Device device = h100();
  const std::vector<KernelSample> few = made(KernelKind::kProduct, 5, 0.8, 0, 7);
  CHECK(fit_kernels(device, few, "s")[0].refused == "7 samples, at least 8 are needed");
  std::vector<KernelSample> alike = made(KernelKind::kProduct, 5, 0.8, 0);
  for (KernelSample& s : alike) s.bytes = 1e7;
  for (KernelSample& s : alike) s.seconds = 1e-4;
  CHECK(fit_kernels(device, alike, "s")[0].refused ==
        "the largest sample has 1.0 times the bytes of the smallest, at least 4 are needed");
  CHECK(device == h100());
}

TEST_CASE("steps of a run give the shares of weights and cache, and steps that lay in a cache are refused") {
  Device device = h100();
  std::vector<StepSample> steps;
  for (int i = 0; i < 100; ++i) {
    const double cache = 1e8 * (1 + i);
    steps.push_back({14e9, cache, 2e-3 + 14e9 / (0.6 * 3350e9) + cache / (0.5 * 3350e9)});
    if (i % 20 == 0) steps.back().seconds *= 4;  // the machine did something else
  }
  const KernelFit fit = fit_steps(device, steps, 2e-3, "run");
  CHECK(fit.refused.empty());
  CHECK(device.value(F::kLinearFraction) == Approx(0.6).epsilon(1e-3));
  CHECK(device.value(F::kAttentionFraction) == Approx(0.5).epsilon(1e-3));
  CHECK(fit_steps(device, std::span(steps).first(5), 0, "r").refused == "5 timed decode steps, at least 8 are needed");
  std::vector<StepSample> noisy = steps;
  for (StepSample& s : noisy) s.kv_bytes *= 1e-6;
  CHECK(fit_steps(device, noisy, 2e-3, "run").refused.find("cannot be told from noise") != std::string::npos);
  for (StepSample& s : steps) s.weight_bytes *= 3;
  CHECK_THROWS_WITH(fit_steps(device, steps, 2e-3, "run"), Catch::Contains("they lay in a cache"));
}

}  // namespace kvroof
