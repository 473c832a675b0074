// Runs of the CPU engine that are recorded and compared with the simulator, byte for byte.
#pragma once

#include <memory>

#include "kernels/cpu/fast_ops.hpp"
#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/recorded_run.hpp"

namespace kvroof::test {

inline TraceReader record(const std::filesystem::path& path, const Model& model, const PolicySpec& spec, KvType kv,
                          const Prompts& prompts, std::unique_ptr<Ops> ops, Recording how = {}) {
  CpuBackend backend(model, std::move(ops), {spec, 0, kv});
  return record_on(backend, path, model, spec, kv, prompts, how);
}

inline void check_equal(const TraceReader& trace, const Expected& expected) {
  const std::vector<StepRecord> steps = trace.steps();
  REQUIRE(steps.size() == expected.steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (std::size_t cause = 0; cause < kCauses; ++cause) {
      INFO("step " << i << ", " << kCauseNames[cause]);
      CHECK(steps[i].bytes.bytes[cause] == expected.steps[i].bytes[cause]);
    }
  }
}

}  // namespace kvroof::test
