// Products of weights with vectors on cold data, by our own kernels and by cuBLASLt: shares of the rates of memory and
// of the tensor cores.
#include "kernels/cuda/measure/product_work.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

// What the tensor cores of a device make at its highest clock of 16-bit products with sums of 32 bits, dense, in one
// second (NVIDIA's architecture papers: so many a clock and multiprocessor); 0: not known.
double peak_flops(const Options& options) {
  const int major = options.device.major, minor = options.device.minor;
  const double a_clock = major == 10 ? 8192 : major == 9 ? 4096 : major == 8 && minor == 0 ? 2048 : 0;
  return a_clock * options.device.multiprocessors * 1e3 * options.card.sm_clock_khz;
}

class LinearLimits {
 public:
  // `library`: null where there is none.
  LinearLimits(const Options& options, Report& report, CublasLt* library, double limit)
      : options_(options), report_(report), library_(library), limit_(limit) {}

  // A row for our own kernels, and one for the library from as many vectors on as tensor cores may take.
  void measure_by_each(const std::string& what, Json parameters, const std::vector<Product>& products,
                       std::uint32_t tokens) {
    constexpr std::uint32_t kFewest = 16;
    parameters["by"] = "own";
    measure_by(nullptr, what, parameters, products, tokens);
    if (library_ == nullptr || (tokens < kFewest && !options_.small)) return;
    parameters["by"] = "cublaslt";
    measure_by(library_, what, parameters, products, tokens);
  }

 private:
  void measure_by(CublasLt* library, const std::string& what, const Json& parameters,
                  const std::vector<Product>& products, std::uint32_t tokens) {
    report_.guarded(what, parameters, [&] {
      Products all(products, tokens, options_.card, library);
      const Measured m = all.time(seconds_a_row(options_));
      Json results = results_of(m, all.bytes(), limit_);
      results["flops_per_s"] = m.median > 0 ? all.flops() / m.median : 0;
      if (const double peak = peak_flops(options_); peak > 0) {
        results["peak_share"] = results["flops_per_s"].get<double>() / peak;
      }
      report_.add(what, parameters, results);
    });
  }

  const Options& options_;
  Report& report_;
  CublasLt* library_;
  double limit_;
};

}  // namespace

void measure_linear(const Options& options, Report& report, double limit) {
  const auto loaded = CublasLt::load();
  report.add("cublaslt", Json::object(), loaded ? Json{{"version", loaded.value()->version()}}
                                                : Json{{"skipped", loaded.error()}});
  LinearLimits limits(options, report, loaded ? loaded.value().get() : nullptr, limit);
  const std::uint32_t part = options.small ? 64 : 1;
  for (const std::uint32_t tokens : {1U, 2U, 4U, 8U, 16U, 64U, 256U, 1024U}) {
    for (const auto& [rows, cols] : {std::pair{4096U, 4096U}, {16384U, 4096U}, {4096U, 16384U}, {50432U, 4096U}}) {
      if (options.small && (tokens % 3 != 1 || tokens > 64)) continue;
      const Product p{rows / part, cols / part};
      limits.measure_by_each("linear", {{"rows", p.rows}, {"cols", p.cols}, {"tokens", tokens}, {"type", "bf16"}}, {p},
                             tokens);
    }
  }
  struct Layer {
    const char* name;
    std::vector<Product> products;
  };
  const std::uint32_t h = 4096 / part, wide = 16384 / part, gated = 11008 / (options.small ? 32 : 1);
  constexpr NormMode kNone = NormMode::kNone, kLayer = NormMode::kLayer, kRms = NormMode::kRms;
  const Layer layers[] = {
      {"mpt-7b",
       {{3 * h, h, false, kLayer}, {h, h, false, kNone, true}, {wide, h, false, kLayer},
        {h, wide, false, kNone, true}}},
      {"llama-2-7b",
       {{3 * h, h, false, kRms}, {h, h, false, kNone, true}, {gated, h, true, kRms},
        {h, gated, false, kNone, true}}}};
  for (const Layer& layer : layers) {
    for (const std::uint32_t tokens : {1U, 4U, 16U, 64U, 256U, 1024U}) {
      if (options.small && tokens > 4) continue;
      limits.measure_by_each("layer_products", {{"model", layer.name}, {"tokens", tokens}, {"type", "bf16"}},
                             layer.products, tokens);
    }
  }
}

}  // namespace kvroof::suite
