#include "sim/cost/deployment.hpp"

#include <fmt/format.h>

namespace kvroof {

Pass Deployment::pass_of(std::uint64_t sequences, double beside) const {
  const std::uint64_t own = of_a_group(sequences);
  const auto all = static_cast<double>(own * data_parallel);
  return {own, all > 0 ? static_cast<double>(sequences) / all : 1, beside};
}

Deployment draft_deployment(const Deployment& target) {
  const Draft& draft = target.speculation->draft;
  Deployment alone(target.types, draft.weights.value_or(target.weights));
  if (target.types.kv.by_age()) alone.types.kv = target.types.kv.rows();
  alone.tensor_parallel = target.tensor_parallel;
  if (draft.shape->experts > 0) {
    alone.data_parallel = target.data_parallel;
    alone.expert_parallel = target.expert_parallel;
  }
  return alone;
}

std::string deployment_problem(const ModelShape& shape, const Deployment& deployment) {
  if (deployment.tensor_parallel == 0 || shape.heads % deployment.tensor_parallel != 0) {
    return fmt::format("{} query heads cannot be spread over {} devices", shape.heads, deployment.tensor_parallel);
  }
  if (shape.other.heads % deployment.tensor_parallel != 0) {
    return fmt::format("{} query heads of some layers cannot be spread over {} devices", shape.other.heads,
                       deployment.tensor_parallel);
  }
  if (deployment.data_parallel == 0) return "no device would attend to a sequence";
  if (deployment.data_parallel > 1 && shape.experts == 0) {
    return fmt::format("{} has no experts that {} groups with sequences of their own could share", shape.name,
                       deployment.data_parallel);
  }
  const std::uint32_t devices = deployment.devices_of_a_layer();
  if (deployment.expert_parallel == 0 || devices % deployment.expert_parallel != 0) {
    return fmt::format("{} device{} cannot be {} groups that each hold whole experts", devices,
                       devices == 1 ? "" : "s", deployment.expert_parallel);
  }
  if (deployment.expert_parallel > 1 && shape.experts % deployment.expert_parallel != 0) {
    return fmt::format("{} experts cannot be spread over {} groups of devices", shape.experts,
                       deployment.expert_parallel);
  }
  if (deployment.expert_parallel > 1 && shape.experts == 0) {
    return fmt::format("{} has no experts, to be spread over {} groups of devices", shape.name,
                       deployment.expert_parallel);
  }
  if (deployment.stages == 0 || deployment.stages > shape.mixers()) {
    return fmt::format("{} layers cannot be spread over {} stages", shape.mixers(), deployment.stages);
  }
  // One group of B and C is copied to each device.
  const std::uint32_t key_heads = shape.state.key_heads > 1 ? shape.state.key_heads : 0;
  for (const std::uint32_t heads : {shape.state.heads, key_heads}) {
    if (heads % deployment.tensor_parallel == 0) continue;
    return fmt::format("{} heads of states cannot be spread over {} devices", heads, deployment.tensor_parallel);
  }
  if (deployment.stages > 1 && deployment.speculation) {
    return "what drafts beside stages takes is not predicted, as it may run on one of them or on all";
  }
  if (!deployment.speculation || !deployment.speculation->draft.shape) return {};
  const Draft& draft = deployment.speculation->draft;
  if (draft.shape->heads % deployment.tensor_parallel == 0) {
    const std::string problem = deployment_problem(*draft.shape, draft_deployment(deployment));
    return problem.empty() ? "" : fmt::format("{}, of the draft {}", problem, draft.name);
  }
  return fmt::format("{} query heads of the draft {} cannot be spread over {} devices", draft.shape->heads, draft.name,
                     deployment.tensor_parallel);
}

}  // namespace kvroof
