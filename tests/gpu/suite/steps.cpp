// Whole decode steps of published shapes with random weights, batch 1 … 64.
#include "tests/gpu/suite/engine_timing.hpp"
#include "kernels/cuda/measure/timing.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {
namespace {

void measure_model(const Options& options, Report& report, const std::string& name, double limit) {
  const std::uint32_t prompt = options.small ? 8 : 256;
  const std::uint32_t most_steps = options.small ? 4 : 100;  // of one batch size
  std::vector<std::uint32_t> batches = {1, 4, 16, 64};
  if (options.small) batches = {1, 2};
  const Model model = random_model(name, 2048, options.small, options.seed);
  EngineTiming engine(model, "full");
  const std::uint32_t all_steps = most_steps * static_cast<std::uint32_t>(batches.size());
  for (const std::uint32_t batch : batches) {
    const Json parameters = {{"model", name}, {"batch", batch}, {"prompt", prompt}, {"type", "bf16"}, {"kv", "bf16"}};
    report.guarded("decode_step", parameters, [&] {
      const double prefill = engine.grow(batch, prompt, all_steps);
      engine.decode();
      engine.bytes_moved();
      std::uint32_t steps = 0;
      const cuda::Measured m = cuda::measure(
          [&] {
            ++steps;
            return engine.decode();
          },
          options.small ? 0.01 : 0.8, most_steps - 2);
      Json results = results_of(m, engine.bytes_moved() / steps, limit);
      results["tokens_per_s"] = batch / m.median;
      results["prefill_seconds"] = prefill;
      report.add("decode_step", parameters, results);
    });
  }
}

}  // namespace

void measure_steps(const Options& options, Report& report) {
  const double limit = measure_copy(options);
  report.add("copy", {{"of", "this process"}}, {{"bytes_per_s", limit}});
  for (const std::string name : {"mpt-7b", "llama-3-8b", "gpt-j-6b", "llama-2-7b"}) {
    if (options.small && name != "llama-3-8b") continue;
    report.guarded("decode_step", {{"model", name}}, [&] { measure_model(options, report, name, limit); });
  }
}

}  // namespace kvroof::suite
