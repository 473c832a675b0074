// Every policy of the table on the device.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr Shape kPrompt = {.query_heads = 4, .kv_heads = 2, .prompt = 16, .layers = 2};
constexpr std::uint32_t kSteps = 2;

Model small_model() {
  Model model =
      load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models/llama-gqa", DType::kF16);
  for (std::uint32_t id = 0; id < model.config.shape.vocab; ++id) {
    model.token_kinds.push_back(static_cast<TokenKind>(id % 7 < 2 ? id % 7 + 1 : 0));
  }
  return model;
}

// Each policy at its defaults, and as it asks other things of its host.
std::vector<PolicySpec> table() {
  std::vector<PolicySpec> all;
  for (const PolicyInfo& info : policy_table()) {
    std::vector<HostNeeds> seen;
    for (const std::string& variant : variants(info)) {
      const PolicySpec spec = spec_of(info.takes_budget ? variant + ":budget=0.5" : variant);
      const HostNeeds needs = info.traits(spec).host_needs();
      const auto same = [&](HostNeeds other) { return !needs.without(other).first() && !other.without(needs).first(); };
      if (std::ranges::any_of(seen, same)) continue;
      seen.push_back(needs);
      all.push_back(with_scores_drawn(spec, kPrompt));
    }
  }
  return all;
}

// Bytes that the caches hold after a prompt and a few tokens.
std::uint64_t held_after_steps(Backend& backend, const Model& model) {
  std::vector<float> logits(model.config.shape.vocab);
  std::vector<std::int64_t> ids;
  for (std::uint32_t i = 0; i < kPrompt.prompt; ++i) ids.push_back((37 * i + 11) % model.config.shape.vocab);
  backend.prefill(0, ids, kSteps, logits, {});
  for (std::uint32_t i = 0; i < kSteps; ++i) {
    const DecodeEntry entry{0, (17 * i + 3) % model.config.shape.vocab};
    backend.decode({&entry, 1}, logits);
    for (const float logit : logits) REQUIRE(std::isfinite(logit));
  }
  return backend.kv_usage().resident_bytes;
}

}  // namespace

TEST_CASE("every policy is named as what the device does not run, or prefills and decodes there as on the host") {
  const Model model = small_model();
  std::size_t refused = 0, ran = 0;
  for (const PolicySpec& policy : table()) {
    INFO(policy.text());
    if (const auto problem = cuda_policy_problem(policy)) {
      CHECK(problem->starts_with("policy " + policy.name));
      CHECK_THROWS_AS(cuda::CudaBackend(model, {policy, 7, model.type}), Error);
      ++refused;
      continue;
    }
    cuda::CudaBackend device(model, {policy, 7, model.type});
    CpuBackend host(model, std::make_unique<ReferenceOps>(), {policy, 7, model.type});
    CHECK(held_after_steps(device, model) == held_after_steps(host, model));
    ++ran;
  }
  CHECK(refused > 5);
  CHECK(ran > policy_table().size() * 2 / 3);
}
