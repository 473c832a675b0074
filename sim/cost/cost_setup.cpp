// What a cost model takes from its device, engine and format of weights, before it prices anything.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/cost/cost.hpp"

namespace kvroof {
namespace {

using F = DeviceField;

// Of the peak, what products of fewer rows than a tile reach, the tile's rows counted: 0.58 to 0.60 in bf16 and 0.53 to
// 0.65 in fp8 (SGLang), 0.74 (Transformers), all on H20 and seen before it was chosen.
constexpr double kTileShare = 0.62;
// Kernels that unpack weights have smaller tiles, and unpacking between their products: the time of half as many rows.
constexpr double kUnpackedTile = 0.5;
constexpr double kUnderWaySpread = 0.25;  // a prior, as the spreads of cost.cpp
// Microseconds that a multiprocessor takes for one KV head of a sequence in decode attention, however few its rows: 10
// to 14 ns a head on 132 and 148 of them in tables of 1,024 and 2,048 sequences of 3 to 31 tokens (H200 and B200,
// TensorRT-LLM and vLLM, ai-dynamo/aiconfigurator @095f58a).
constexpr double kHeadUs = 1.4;
constexpr double kMultiprocessors = 132;  // of a board whose catalog entry does not say, as H100 has

}  // namespace

CostModel::Rate CostModel::rate(const Device& device, DeviceField field, double unit) const {
  const std::optional<Fact>& fact = device.fact(field);
  check(fact.has_value(), "a device of a cost model has its achieved facts");
  return {fact->value * unit, fact->spread};
}

// Of a cache, on the device that has most of its heads.
static double share_of_heads(std::uint32_t kv_heads, std::uint32_t devices) {
  kv_heads = std::max(kv_heads, 1U);
  return (kv_heads + devices - 1) / devices / static_cast<double>(kv_heads);
}

double CostModel::kv_share(std::uint32_t storage_heads) const {
  return storage_heads <= shape_.kv_heads ? kv_share_ : share_of_heads(storage_heads, deployment_.tensor_parallel);
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

CostModel::CostModel(const ModelShape& shape, const Deployment& deployment, const Device& device,
                     const EngineProfile& engine)
    : shape_(shape),
      types_(deployment.types),
      deployment_(deployment),
      engine_(engine),
      capacity_(device.usable_memory()),
      share_(1.0 / deployment.tensor_parallel) {
  check(deployment_problem(shape, deployment).empty(), "a deployment of a cost model is possible");
  if (engine.float32_states) shape_.state.type = DType::kF32;
  if (engine.float32_state_rows) shape_.state.row_type = DType::kF32;
  deployment_.weights = format_in(shape, deployment.weights, engine.beside_experts_bits);
  if (!attention_only(shape)) {
    const double second_head = engine.unties_head && shape.tied_head ? deployment_.weights.head_bits / 8 : 0;
    const std::uint64_t all = weight_bytes(shape, deployment_.weights).value +
                              static_cast<std::uint64_t>(second_head * static_cast<double>(head_parameters(shape)));
    // What other groups of devices hold of the routed experts.
    const double elsewhere = (1 - 1.0 / deployment_.data_parallel) * deployment_.weights.expert_bits / 8 *
                             static_cast<double>(routed_parameters(shape));
    const double own = fullest_stage(static_cast<double>(all) - elsewhere);
    weights_ = Bytes(static_cast<std::uint64_t>(std::ceil(share_ * own)));
  }
  // The layers that hold rows come first.
  const double of_stage = std::ceil(shape.layers / static_cast<double>(deployment.stages));
  stage_share_ = std::min(1.0, of_stage / (shape.layers - shape.sharing_layers));
  kv_share_ = share_of_heads(shape.kv_heads, deployment.tensor_parallel);
  // Where kinds of layers are spread differently, the larger share counts for all.
  if (!shape.other.layers.empty()) {
    kv_share_ = std::max(kv_share_, share_of_heads(shape.other.kv_heads, deployment.tensor_parallel));
  }
  set_reading(device);
  set_products(device);
  set_attention(device);
  set_index(device);
  elementwise_start_ = rate(device, F::kElementwiseUs, 1e-6);
  set_links(device);
  set_exchange(device);
  together_ = device.kind == DeviceKind::kCpu;
  if (!together_) {
    head_seconds_ = kHeadUs * 1e-6 / (device.fact(F::kSmCount) ? device.value(F::kSmCount) : kMultiprocessors);
    set_limits(device);
  }
  set_draft(device);
}

// Bytes of weights on the stage that has most of them, of `all`: layers are shared out whole, the first stage has the
// embedding and the last one the head. Where layers do not divide evenly some stages have one more: under engines with
// short ends others than these two, as long as there are others.
double CostModel::fullest_stage(double all) const {
  if (deployment_.stages == 1) return all;
  const WeightFormat& format = deployment_.weights;
  const double head = format.head_bits / 8 * static_cast<double>(head_parameters(shape_));
  const double embedding = (shape_.tied_head ? format.head_bits : format.embedding_bits) / 8 *
                           static_cast<double>(embedding_parameters(shape_));
  const bool one_for_both = shape_.tied_head && !engine_.unties_head;
  const double layers = all - embedding - (one_for_both ? 0 : head), end = std::max(embedding, head);
  const std::uint32_t all_layers = shape_.mixers();
  const double least = all_layers / deployment_.stages, most = (all_layers - 1) / deployment_.stages + 1;
  const std::uint32_t longer = all_layers % deployment_.stages;
  const bool end_is_longer = longer > 0 && (!engine_.short_ends || longer + 2 > deployment_.stages);
  return std::max(layers * most / all_layers + (end_is_longer ? end : 0), layers * least / all_layers + end);
}

// Weights: what keeps enough bytes under way, else a share of the bandwidth.
void CostModel::set_reading(const Device& device) {
  const double bandwidth = device.bandwidth().value;
  linear_bandwidth_ = rate(device, F::kLinearFraction, bandwidth);
  const bool other_rate = !deployment_.weights.quantised() && engine_.plain_bytes_per_clock > 0;
  const double per_clock = other_rate ? engine_.plain_bytes_per_clock : engine_.bytes_per_clock;
  if (per_clock > 0 && device.fact(F::kSmCount) && device.fact(F::kBoostMhz)) {
    const double under_way = device.value(F::kSmCount) * device.value(F::kBoostMhz) * 1e6 * per_clock;
    if (under_way < linear_bandwidth_.value) linear_bandwidth_ = {under_way, kUnderWaySpread};
  }
  attention_bandwidth_ = rate(device, F::kAttentionFraction, bandwidth);
  if (device.fact(F::kL2Mib)) cache_bytes_ = device.value(F::kL2Mib) * 1024 * 1024;
  working_sets_ = device.working_sets;
}

bool CostModel::multiplies_in_format(const Device& device) const {
  const WeightFormat& format = deployment_.weights;
  return engine_.quantises_activations && format.peak && device.fact(*format.peak);
}

// In the format of the weights where engine and device have such products, else in 16 bits after unpacking.
void CostModel::set_products(const Device& device) {
  const WeightFormat& format = deployment_.weights;
  matmul_fraction_ = device.value(F::kMatmulFraction);
  const bool own_products = multiplies_in_format(device);
  if (own_products) prompt_share_ = format.prompt_share;
  const bool packed_as_is = own_products || (format.native && device.fact(*format.native));
  // Of a mixture, boards may have products of what all else is stored in, but none of the experts'.
  const bool experts_as_is = own_products && format.native ? device.fact(*format.native).has_value() : packed_as_is;
  unpacks_experts_alone_ = packed_as_is && !experts_as_is;
  const double unpacking = experts_as_is ? 0 : engine_.unpacking * format.unpack_operations;
  set_experts(own_products, experts_as_is);
  unpack_seconds_ = unpacking / device.peak(DType::kF32).value;
  const double dense = own_products ? device.value(*format.peak) * 1e12 : device.peak(types_.weights).value;
  const bool own_share = own_products && format.share && device.fact(*format.share);
  linear_peak_ = own_share ? rate(device, *format.share, dense)
                           : rate(device, F::kMatmulFraction, kAnyShapeShare * dense);
  if (device.fact(F::kTileRows) && !(engine_.bytes_per_clock > 0)) {
    const double rows = unpack_seconds_ > 0 ? kUnpackedTile : 1;
    tile_ = rate(device, F::kTileRows, rows * 2 / (kTileShare * dense));
  }
  kernel_start_ = rate(device, F::kLinearT0Us, 1e-6);
  linear_start_ = kernel_start_;
  if (own_products) {
    quantise_fused_ = format.start_us * 1e-6;
    quantise_apart_ = format.quantise_us * 1e-6;
    if (engine_.quantises_fp4_apart && format.layer_bits < 8) quantise_fused_ += std::exchange(quantise_apart_, 0);
    if (format.walk && device.fact(*format.walk)) walk_ = rate(device, *format.walk, 1e-6 / 1024);
  }
  if (!own_products && format.layer_bits < 16) {
    linear_start_.value *= engine_.unpacked_starts;
    linear_peak_.value *= engine_.unpacked_share;
  }
}

void CostModel::set_attention(const Device& device) {
  // Products of a cache of 8 bits and less are computed in 16 bits.
  const DType attention_type = types_.kv.bits() <= 8 ? DType::kF16 : types_.kv.rows();
  attention_peak_ = rate(device, F::kMatmulFraction, device.peak(attention_type).value);
  policy_peak_ = rate(device, F::kMatmulFraction, device.peak(DType::kF32).value);
  attention_start_ = rate(device, F::kAttentionFloorUs, 1e-6);
  attention_call_ = rate(device, F::kAttentionCallUs, 1e-6);
  attention_cold_ = rate(device, F::kAttentionColdUs, 1e-6);
}

}  // namespace kvroof
