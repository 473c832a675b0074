// Tokens that go many at once: what the engines then move is what the simulator computes.
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/model_folder.hpp"
#include "tests/support/recorded_run.hpp"

using namespace kvroof;

namespace {

std::vector<std::int64_t> prompt_of(std::size_t length, std::int64_t seed) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < length; ++i) ids.push_back((37 * static_cast<std::int64_t>(i) + seed * 11 + 5) % 200);
  return ids;
}

void check_declared(Backend& backend, const char* name, const Model& model, const PolicySpec& spec,
                    const test::Prompts& prompts, std::uint32_t steps) {
  INFO(name);
  const test::TraceFolder folder;
  const TraceReader trace =
      test::record_on(backend, folder.path(), model, spec, model.type, prompts, {name, false, steps});
  const test::Expected expected = test::simulate(trace, model, spec, model.type);
  CHECK(expected.reproduction.decisions > 0);
  CHECK(expected.reproduction.problem() == "");
  std::uint64_t moved = 0;
  const std::vector<StepRecord> got = trace.steps();
  REQUIRE(got.size() == expected.steps.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("step " << i);
    moved += got[i].bytes[Cause::kCompaction];
    for (const Cause cause : {Cause::kKvWrite, Cause::kScores, Cause::kCompaction}) {
      INFO(kCauseNames[static_cast<std::size_t>(cause)]);
      CHECK(got[i].bytes[cause] == expected.steps[i][cause]);
    }
  }
  CHECK(moved > 0);
}

}  // namespace

TEST_CASE("under scissorhands the device and the host move the bytes that the simulator computes") {
  for (const char* name : {"deepseek-v2", "llama-gqa"}) {
    const Model model = load_model(test::kGoldenModels / name, DType::kF16);
    for (const char* policy : {"recent=2:drop=1", "recent=3:drop=3:reading=B", "recent=2:drop=1:group=none"}) {
      INFO(name << " " << policy);
      const PolicySpec spec = parse_policies(std::string("scissorhands:budget=8:") + policy).at(0);
      const test::Prompts prompts = {prompt_of(13, 1), prompt_of(10, 2)};
      cuda::CudaBackend device(model, {spec, 0, model.type});
      check_declared(device, "cuda", model, spec, prompts, 8);
      CpuBackend host(model, std::make_unique<ReferenceOps>(), {spec, 0, model.type});
      check_declared(host, "reference", model, spec, prompts, 8);
    }
  }
}
