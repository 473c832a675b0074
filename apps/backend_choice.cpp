#include "apps/backend_choice.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/fast_ops.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/engine/output_projections.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

constexpr std::array kKinds = {BackendKind::kFast, BackendKind::kReference, BackendKind::kCuda};

class LoadProgress {
 public:
  LoadProgress(const Arguments& arguments, const Model& model)
      : shown_(arguments, "loading weights"), total_(weight_bytes(model.config.shape, model.type).value) {}
  [[nodiscard]] ElementProgress watch() {
    return [this](std::uint64_t bytes) { shown_.at(done_ += bytes, total_); };
  }

 private:
  Progress shown_;
  std::uint64_t done_ = 0, total_;
};

}  // namespace

std::string_view name_of(BackendKind kind) {
  switch (kind) {
    case BackendKind::kReference: return "reference";
    case BackendKind::kFast: return "fast";
    default: return "cuda";
  }
}

BackendChoice backend_option(const Arguments& arguments) {
  if (!arguments.has("backend")) return {cuda_device_problem() ? BackendKind::kFast : BackendKind::kCuda, false, {}};
  const auto& name = arguments.get<std::string>("backend");
  std::vector<std::string> known;
  for (const BackendKind kind : kKinds) {
    known.emplace_back(name_of(kind));
    if (name != known.back()) continue;
    const auto problem = kind == BackendKind::kCuda ? cuda_device_problem() : std::nullopt;
    if (problem) throw Error("--backend cuda: " + *problem, ExitCode::kNeedsDevice);
    return {kind, true, {}};
  }
  throw usage_error(fmt::format("--backend {}: unknown{}", name, did_you_mean(name, known)))
      .note("known: " + join(known));
}

void settle_backend(BackendChoice& choice, const ModelConfig& config, std::span<const PolicySpec> policies,
                    std::optional<DType> weights) {
  if (choice.kind != BackendKind::kCuda) return;
  const DType type = weights.value_or(config.shape.weight_type);
  std::optional<std::string> what;
  for (std::size_t i = 0; !what && i < policies.size(); ++i) {
    what = cuda_model_problem(config, type, policies[i].kv.value_or(type));
    if (!what) what = cuda_policy_problem(policies[i]);
  }
  if (!what) return;
  const std::string refusal = fmt::format("{}: the CUDA back end does not run {}", config.shape.name, *what);
  if (choice.asked_for) throw usage_error(refusal).note("`--backend fast` runs it on the CPU");
  choice = {BackendKind::kFast, false, refusal + "; the CPU does"};
}

void make_host_elements(BackendKind kind, const Arguments& arguments, Model& model,
                        std::span<const PolicySpec> policies) {
  const auto projects = [](const PolicySpec& policy) {
    return policy_info(policy.name).traits(policy).needs_output_projection;
  };
  if (kind == BackendKind::kCuda) {
    if (std::ranges::any_of(policies, projects)) make_output_projections(model);
    return;
  }
  LoadProgress progress(arguments, model);
  make_elements(model, progress.watch());
}

std::unique_ptr<Backend> make_backend(BackendKind kind, const Arguments& arguments, const Model& model,
                                      const PolicySpec& policy) {
  const KvType kv_type = policy.kv.value_or(model.type);
  if (kind == BackendKind::kCuda) {
    LoadProgress progress(arguments, model);
    return make_cuda_backend(model, policy, arguments.seed, kv_type, progress.watch());
  }
  std::unique_ptr<Ops> ops;
  if (kind == BackendKind::kFast) {
    ops = make_fast_ops(arguments.threads);
  } else {
    ops = std::make_unique<ReferenceOps>();
  }
  return std::make_unique<CpuBackend>(model, std::move(ops), CpuBackendOptions{policy, arguments.seed, kv_type});
}

}  // namespace kvroof
