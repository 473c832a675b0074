#include "sim/cost/linear_costs.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvroof {
namespace {

using F = DeviceField;

// Of the peak, what products of fewer rows than a tile reach, the tile's rows counted: 0.58 to 0.60 in bf16 and 0.53 to
// 0.65 in fp8 (SGLang), 0.74 (Transformers), all on H20 and seen before it was chosen.
constexpr double kTileShare = 0.62;
// Kernels that unpack weights have smaller tiles, and unpacking between their products: the time of half as many rows.
constexpr double kUnpackedTile = 0.5;
// Rows that vector products of unpacked weights take one after another; kernels of tiles serve more.
constexpr std::uint64_t kColumns = 8;
// Relative half-widths (80 %) of what no device file states: priors, see docs/method.md.
constexpr double kUnpackSpread = 0.40;
constexpr double kActivationSpread = 0.30;  // where an engine says what its kernels between products reach
constexpr double kPrefillSpread = 0.30;     // clocks under sustained load, launches and sampling of a prompt
// Of the activations, what every device of a shared layer reads and writes whole: norms, residuals, inputs of products.
constexpr double kReplicated = 0.4;
// Two norms, a rotation and an activation are the element-wise work of a layer.
constexpr double kElementwiseCalls = 4;
// How often a token's row, in 16 bits, passes through memory for each of its experts: gathered, quantised, multiplied,
// activated, multiplied and summed. Tables of layers with 2,048 to 8,192 tokens fit 8 in TensorRT-LLM's 16 bits, 16 to
// 20 in its blocks of fp8, 3 where 4 bits are multiplied as they are stored (docs/method.md).
constexpr double kRowPasses = 8;

// What layers of other heads, and MLPs of layers without rows of their own, have more than the others.
double columns_of_wider_layers(const ModelShape& s) {
  const double theirs = double{1} * s.other.heads * s.other.v_head_dim, most = double{1} * s.heads * s.v_head_dim;
  const double of_heads = static_cast<double>(s.other.layers.size()) * (theirs - most);
  return s.sharing_ffn > 0 ? of_heads + double{1} * s.sharing_layers * (double{1} * s.sharing_ffn - s.ffn) : of_heads;
}

double expert_operations(const ModelShape& shape, std::uint64_t tokens) {
  if (shape.experts == 0) return 0;
  return 2.0 * static_cast<double>(tokens * shape.expert_layers() * shape.experts_per_token) *
         static_cast<double>(expert_parameters(shape));
}

}  // namespace

LinearCosts::LinearCosts(const Placement& placed, const KernelRates& rates, const Device& device)
    : placed_(placed),
      rates_(rates),
      more_(more_launches(placed)),
      start_(rates.kernel_start),
      elementwise_start_(rate(device, F::kElementwiseUs, 1e-6)) {
  const WeightFormat& format = placed.deployment.weights;
  const bool own = placed.format.own;
  const double unpacking = placed.format.experts_as_stored ? 0 : placed.engine.unpacking * format.unpack_operations;
  unpack_seconds_ = unpacking / device.peak(DType::kF32).value;
  const double dense = own ? device.value(*format.peak) * 1e12 : device.peak(placed.types().weights).value;
  const bool own_share = own && format.share && device.fact(*format.share);
  peak_ = own_share ? rate(device, *format.share, dense) : rate(device, F::kMatmulFraction, kAnyShapeShare * dense);
  if (device.fact(F::kTileRows) && !(placed.engine.bytes_per_clock > 0)) {
    const double rows = unpack_seconds_ > 0 ? kUnpackedTile : 1;
    tile_ = rate(device, F::kTileRows, rows * 2 / (kTileShare * dense));
  }
  if (own) set_own_products(device);
  if (!own && format.layer_bits < 16) {
    start_.value *= placed.engine.unpacked_starts;
    peak_.value *= placed.engine.unpacked_share;
  }
}

void LinearCosts::set_own_products(const Device& device) {
  const WeightFormat& format = placed_.deployment.weights;
  prompt_share_ = format.prompt_share;
  quantise_fused_ = format.start_us * 1e-6;
  quantise_apart_ = format.quantise_us * 1e-6;
  if (placed_.engine.quantises_fp4_apart && format.layer_bits < 8) quantise_fused_ += std::exchange(quantise_apart_, 0);
  if (format.walk && device.fact(*format.walk)) walk_ = rate(device, *format.walk, 1e-6 / 1024);
}

// A graph computes for as many sequences as it was captured for.
void LinearCosts::add_step(Parts& parts, const LinearWork& work, std::uint64_t computed, Rate reading) const {
  const double padding = static_cast<double>(computed) / static_cast<double>(work.tokens);
  LinearWork padded = work;
  padded.flops *= padding;
  padded.activation_bytes *= padding;
  add_products(parts, padded, reading, peak_);
  parts.add(CostTerm::kElementwise, Limit::kCompute, activation_seconds(padded.activation_bytes, computed),
            placed_.engine.activation_share > 0 ? kActivationSpread : rates_.linear_bandwidth.spread);
}

void LinearCosts::add_prompts(Parts& parts, const LinearWork& work) const {
  add_products(parts, work, rates_.linear_bandwidth, {prompt_share_ * peak_.value, kPrefillSpread});
  parts.add(CostTerm::kElementwise, Limit::kCompute, activation_seconds(work.activation_bytes, work.tokens),
            kPrefillSpread);
}

// Prompts' share of the arithmetic runs at the rate of prompts.
void LinearCosts::add_mixed(Parts& parts, const LinearWork& all, const LinearWork& prompts, Rate reading) const {
  const double share = prompts.operations() / all.operations();
  const double of_prompts = share / prompt_share_, seconds = of_prompts + (1 - share);
  const Rate peak{peak_.value / seconds, (of_prompts * kPrefillSpread + (1 - share) * peak_.spread) / seconds};
  add_products(parts, all, reading, peak);
  parts.add(CostTerm::kElementwise, Limit::kCompute, activation_seconds(all.activation_bytes, all.tokens),
            kPrefillSpread);
}

void LinearCosts::add_products(Parts& parts, const LinearWork& work, Rate reading, Rate peak) const {
  const EngineProfile& engine = placed_.engine;
  const double layers = placed_.shape.depth(), share = placed_.share;
  const double calls = layers * engine.linears_per_layer + more_.products + 1;
  const Rate start{start_.value + more_.quantised / calls * quantise_fused_, start_.spread};
  if (work.packed > 0) {
    reading.value /= 1 + engine.column_share * static_cast<double>(std::min(work.tokens, kColumns) - 1);
  }
  const double unpacking = work.packed * unpack_seconds_;
  if (unpacking * reading.value > work.bytes) reading = {work.bytes / unpacking, kUnpackSpread};
  parts.add_roofline(CostTerm::kLinear, Limit::kWeights, calls, start, share * work.bytes, reading,
                     share * work.operations(), peak, {share * work.elements * tile_.value, tile_.spread});
  parts.add(CostTerm::kLinear, Limit::kLaunches, more_.expert_calls, start.spread);
  parts.add(CostTerm::kElementwise, Limit::kCompute, work.fill * expert_row_seconds(work.tokens), kActivationSpread);
  parts.add(CostTerm::kLinear, Limit::kLaunches, walk_.value > 0 ? walked_columns() * walk_.value : 0, walk_.spread);
  // Two norms are half of the element-wise kernels of a layer, beside a rotation and an activation.
  const double elementwise = engine.norms_in_sums && placed_.deployment.tensor_parallel > 1 ? 0.5 : 1;
  const double kernel_start = rates_.kernel_start.value;
  parts.add(CostTerm::kElementwise, Limit::kLaunches,
            layers * (elementwise * elementwise_start_.value + engine.small_kernels * kernel_start) +
                more_.others * kernel_start,
            elementwise_start_.spread);
}

void LinearCosts::add_head(Parts& parts, std::uint64_t tokens, Rate reading) const {
  const auto elements = static_cast<double>(head_parameters(placed_.shape));
  parts.add_roofline(CostTerm::kLinear, Limit::kWeights, 1, start_,
                     placed_.share * elements * placed_.deployment.weights.head_bits / 8, reading,
                     placed_.share * 2 * elements * static_cast<double>(tokens), peak_);
}

Parts LinearCosts::product(std::uint64_t m, std::uint64_t n, std::uint64_t k) const {
  const auto elements = static_cast<double>(n * k);
  const WeightFormat& format = placed_.deployment.weights;
  Parts parts;
  const Rate start{start_.value + quantise_fused_ + quantise_apart_, start_.spread};
  parts.add_roofline(CostTerm::kLinear, Limit::kWeights, 1, start, elements * format.layer_bits / 8,
                     rates_.linear_bandwidth, 2 * static_cast<double>(m) * elements, peak_);
  parts.add(CostTerm::kLinear, Limit::kLaunches, static_cast<double>(k) * walk_.value, walk_.spread);
  // Inputs of 16 bits are read, and written in the format's own; measured shares of a peak hold that.
  const bool apart = quantise_apart_ > 0 && !format.share;
  const double inputs = apart ? static_cast<double>(m * k) * (16 + format.layer_bits) / 8 : 0;
  parts.add(CostTerm::kElementwise, Limit::kCompute, inputs / rates_.linear_bandwidth.value,
            rates_.linear_bandwidth.spread);
  return parts;
}

Parts LinearCosts::elementwise_call(std::uint64_t elements) const {
  Parts parts;
  // Read and written; half of the cache holds what the call before it wrote.
  const double bytes = 2 * kActivationBytes * static_cast<double>(elements);
  const double through = std::max(0.0, bytes - 0.5 * rates_.cache_bytes);
  parts.add(CostTerm::kElementwise, Limit::kLaunches, elementwise_start_.value / kElementwiseCalls,
            elementwise_start_.spread);
  parts.add(CostTerm::kElementwise, Limit::kCompute, through / rates_.linear_bandwidth.value,
            rates_.linear_bandwidth.spread);
  return parts;
}

LinearWork LinearCosts::work_of(const StepTraffic& traffic, std::uint64_t tokens, double fill) const {
  const ModelShape& shape = placed_.shape;
  const WeightFormat& format = placed_.deployment.weights;
  const auto counted = static_cast<double>(traffic.bytes[Cause::kWeights]);
  const double elements = counted / static_cast<double>(size_of(placed_.types().weights));
  // Of experts that groups of devices share, each group's devices read a part of those that the tokens of all chose.
  const auto read_of = [&](std::uint64_t choosing) {
    return std::round(expected_experts(shape, choosing)) *
           (shape.experts > 0 ? static_cast<double>(expert_parameters(shape)) : 0);
  };
  const double counted_experts = read_of(tokens);
  const std::uint32_t groups = placed_.deployment.data_parallel;
  const auto choosing = static_cast<std::uint64_t>(std::ceil(fill * static_cast<double>(tokens * groups)));
  const double experts = groups > 1 ? read_of(choosing) / groups : counted_experts;
  const auto head = static_cast<double>(head_parameters(shape));
  const double layers = elements - counted_experts - head;
  const auto packed = [](double count, double bits) { return bits < 16 ? count : 0; };
  const bool experts_alone = placed_.format.unpacks_experts_alone();
  return {.tokens = tokens,
          .fill = fill,
          .bytes = (layers * format.layer_bits + experts * format.expert_bits + head * format.head_bits) / 8,
          .elements = elements - counted_experts + experts,
          .packed = packed(experts, format.expert_bits) +
                    (experts_alone ? 0 : packed(layers, format.layer_bits) + packed(head, format.head_bits)),
          .expert_bytes = experts * format.expert_bits / 8,
          .flops = traffic[KernelFamily::kLinear].value,
          .absent_flops = (1 - fill) * expert_operations(shape, tokens),
          .activation_bytes = static_cast<double>(traffic.bytes[Cause::kActivations])};
}

// The share of the activations that goes through memory: what operators hand on stays in half of the cache.
double LinearCosts::uncached(std::uint64_t tokens) const {
  const ModelShape& shape = placed_.shape;
  const std::uint64_t q_alone = std::max(std::uint64_t{shape.heads} * shape.head_dim,
                                         std::uint64_t{shape.other.heads} * shape.other.head_dim);
  const std::uint64_t q = q_alone * (shape.attention_gate || shape.compressed ? 2 : 1);  // with its gate, or output
  const std::uint64_t state = state_rows(shape.state, shape.hidden).widest;
  const std::uint64_t elements = std::max({std::uint64_t{shape.hidden}, widest_mlp(shape), q, state});
  const double widest = 4.0 * static_cast<double>(tokens) * static_cast<double>(elements);
  return widest > 0 ? std::max(0.0, 1 - 0.5 * rates_.cache_bytes / widest) : 0;
}

double LinearCosts::activation_seconds(double bytes, std::uint64_t tokens) const {
  const EngineProfile& engine = placed_.engine;
  const double passes = engine.activation_share > 0 ? 1 / engine.activation_share : uncached(tokens);
  const double stored = bytes * engine.activation_bytes / 4;
  return (placed_.share + kReplicated * (1 - placed_.share)) * stored * passes / rates_.linear_bandwidth.value;
}

// A device has the rows of the experts that it holds, whole or in part.
double LinearCosts::expert_row_seconds(std::uint64_t tokens) const {
  const ModelShape& shape = placed_.shape;
  const double rows = static_cast<double>(shape.expert_layers() * tokens * shape.experts_per_token) *
                      placed_.deployment.data_parallel / placed_.deployment.expert_parallel;
  return rows * shape.routed_width() * kActivationBytes * kRowPasses / rates_.linear_bandwidth.value;
}

// Columns of the matrices that one device multiplies one after another: those that hold a part of the outputs have all
// columns, those whose outputs are summed over devices a part of them. Routed experts are one call of their own.
double LinearCosts::walked_columns() const {
  const ModelShape& shape = placed_.shape;
  const double share = placed_.share, whole = shape.hidden;
  const bool latent_too = !(shape.latent() && placed_.deployment.weights.plain_latent);
  const std::uint32_t v_dim = shape.latent() ? shape.latent_v_dim : shape.v_head_dim;
  const double attention = latent_too ? whole + share * shape.heads * v_dim : 0;
  const auto routed = static_cast<double>(shape.expert_layers());
  const double shared = shape.shared_expert_ffn > 0 ? whole + share * shape.shared_expert_ffn : 0;
  const auto state_out = static_cast<double>(state_rows(shape.state, shape.hidden).out);
  const double states = shape.state.layers * (whole + share * state_out);
  return shape.layers * attention + states + (shape.mlps() - routed) * (whole + share * shape.ffn) +
         routed * shared + share * columns_of_wider_layers(shape);
}

}  // namespace kvroof
