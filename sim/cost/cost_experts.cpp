// What routed and shared experts, latent attention, indexes, compressed rows, residual streams and states launch, and
// when their calls start.
#include <algorithm>

#include "sim/cost/cost_parts.hpp"

namespace kvroof {
namespace {

// How often a token's row, in 16 bits, passes through memory for each of its experts: gathered, quantised, multiplied,
// activated, multiplied and summed. Tables of layers with 2,048 to 8,192 tokens fit 8 in TensorRT-LLM's 16 bits, 16 to
// 20 in its blocks of fp8, 3 where 4 bits are multiplied as they are stored (docs/method.md).
constexpr double kRowPasses = 8;

}  // namespace

// `own_products`: of the weights' own type; `packed_as_is`: nothing is unpacked on this board.
void CostModel::set_experts(bool own_products, bool packed_as_is) {
  const WeightFormat& format = deployment_.weights;
  native_experts_ = packed_as_is && format.expert_bits < 8;
  routed_kernels_ = engine_.routed_kernels;
  if (native_experts_) routed_kernels_ = std::min(engine_.native_routed_kernels, engine_.routed_kernels);
  if (own_products && format.expert_bits == 8) {
    const double held = static_cast<double>(shape_.experts) / deployment_.expert_parallel;
    const double apart = engine_.quantises_experts_apart ? 2 * format.quantise_us : 0;
    expert_call_ = (engine_.listed_expert_us * held + apart) * 1e-6;
  } else if (!packed_as_is && format.expert_bits < 8 && (format.layer_bits == 16 || unpacks_experts_alone_)) {
    expert_call_ = engine_.unpacked_experts_us * 1e-6;
  }
  expert_call_ += engine_.experts_us * 1e-6;
}

// Routed experts have a router, and shared ones two products, an activation and a sum. Latent attention has five
// products in place of two, for the latent row of k and v and its way back, and two norms more. An index has three
// products, a norm and a rotation (what scores and chooses tokens: add_index()). Beside compressed rows attention has
// two products more, of q and of the output, two norms and the output's rotation; the rows a product of their own and a
// kernel that makes them. Residual streams have a product, the sum of its parts and what makes weights and a mean of it
// on the way in, and a kernel on the way out. A state has a convolution where attention has none.
CostModel::MoreKernels CostModel::more_kernels() const {
  const auto routed = static_cast<double>(shape_.expert_layers());
  const bool apart = native_experts_ || !engine_.shared_with_routed;
  const double shared = shape_.shared_expert_ffn > 0 && apart ? routed : 0;
  const double latent = shape_.latent() ? shape_.layers : 0;
  const double ways = shape_.expert_width > 0 ? 2 * routed : 0;  // to narrower experts and back
  const double states = shape_.state.layers, index = shape_.index.layers;
  const double beside = shape_.compressed ? shape_.layers : 0, made = shape_.compressed.layers();
  const double streams = shape_.residual_streams > 1 ? 2 * shape_.depth() : 0;
  MoreKernels more{routed + 2 * shared + 3 * latent + 3 * index + ways + states * state_products() + 2 * beside + made +
                       streams,
                   routed_kernels_ * routed + 2 * shared + 2 * latent + 2 * index + states + 3 * beside + made +
                       3 * streams};
  more.expert_calls = routed * expert_call_;
  more.quantised = shape_.depth() * engine_.linears_per_layer + more.products;
  // Routers stay in 16 bits, and so may latent attention; a kernel of experts in 4 bits quantises its inputs itself.
  if (native_experts_) more.quantised -= 3 * routed;
  if (deployment_.weights.plain_latent) more.quantised -= 5 * latent + 3 * index;
  more.quantised -= streams + made;  // what makes rows and mixes streams stays as it is
  return more;
}

// A device has the rows of the experts that it holds, whole or in part.
double CostModel::expert_row_seconds(std::uint64_t tokens) const {
  const double rows = static_cast<double>(shape_.expert_layers() * tokens * shape_.experts_per_token) *
                      deployment_.data_parallel / deployment_.expert_parallel;
  return rows * shape_.routed_width() * kActivationBytes * kRowPasses / linear_bandwidth_.value;
}

double CostModel::expert_operations(std::uint64_t tokens) const {
  if (shape_.experts == 0) return 0;
  return 2.0 * static_cast<double>(tokens * shape_.expert_layers() * shape_.experts_per_token) *
         static_cast<double>(expert_parameters(shape_));
}

}  // namespace kvroof
