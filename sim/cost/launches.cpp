#include "sim/cost/launches.hpp"

#include <algorithm>

namespace kvroof {
namespace {

// Of one layer with a state, beside the two that a layer of attention has there.
double state_products(const ModelShape& shape) {
  double products = 0;
  each_state_product(shape.state, shape.hidden, [&](std::uint64_t, std::uint64_t) { ++products; });
  return shape.state.beside_attention ? products : std::max(0.0, products - 2);
}

// Experts of 4 bits are multiplied as they are stored.
bool native_experts(const Placement& placed) {
  return placed.format.experts_as_stored && placed.deployment.weights.expert_bits < 8;
}

// Seconds that the experts of a layer start later.
double expert_call(const Placement& placed) {
  const EngineProfile& engine = placed.engine;
  const WeightFormat& format = placed.deployment.weights;
  double later_us = 0;
  if (placed.format.own && format.expert_bits == 8) {
    const double held = static_cast<double>(placed.shape.experts) / placed.deployment.expert_parallel;
    const double apart = engine.quantises_experts_apart ? 2 * format.quantise_us : 0;
    later_us = engine.listed_expert_us * held + apart;
  } else if (!placed.format.experts_as_stored && format.expert_bits < 8 &&
             (format.layer_bits == 16 || placed.format.unpacks_experts_alone())) {
    later_us = engine.unpacked_experts_us;
  }
  return later_us * 1e-6 + engine.experts_us * 1e-6;
}

}  // namespace

// Routed experts have a router, and shared ones two products, an activation and a sum. Latent attention has five
// products in place of two, for the latent row of k and v and its way back, and two norms more. An index has three
// products, a norm and a rotation (what scores and chooses tokens: IndexCosts). Beside compressed rows attention has
// two products more, of q and of the output, two norms and the output's rotation; the rows a product of their own and a
// kernel that makes them. Residual streams have a product, the sum of its parts and what makes weights and a mean of it
// on the way in, and a kernel on the way out. A state has a convolution where attention has none.
MoreLaunches more_launches(const Placement& placed) {
  const ModelShape& shape = placed.shape;
  const EngineProfile& engine = placed.engine;
  const bool native = native_experts(placed);
  const auto routed = static_cast<double>(shape.expert_layers());
  const double of_routed =
      native ? std::min(engine.native_routed_kernels, engine.routed_kernels) : engine.routed_kernels;
  const double shared = shape.shared_expert_ffn > 0 && (native || !engine.shared_with_routed) ? routed : 0;
  const double latent = shape.latent() ? shape.layers : 0;
  const double ways = shape.expert_width > 0 ? 2 * routed : 0;  // to narrower experts and back
  const double states = shape.state.layers, index = shape.index.layers;
  const double beside = shape.compressed ? shape.layers : 0, made = shape.compressed.layers();
  const double streams = shape.residual_streams > 1 ? 2 * shape.depth() : 0;
  MoreLaunches more;
  more.products = routed + 2 * shared + 3 * latent + 3 * index + ways + states * state_products(shape) + 2 * beside +
                  made + streams;
  more.others =
      of_routed * routed + 2 * shared + 2 * latent + 2 * index + states + 3 * beside + made + 3 * streams;
  more.expert_calls = routed * expert_call(placed);
  more.quantised = shape.depth() * engine.linears_per_layer + more.products;
  // Routers stay in 16 bits, and so may latent attention; a kernel of experts in 4 bits quantises its inputs itself.
  if (native) more.quantised -= 3 * routed;
  if (placed.deployment.weights.plain_latent) more.quantised -= 5 * latent + 3 * index;
  more.quantised -= streams + made;  // what makes rows and mixes streams stays as it is
  return more;
}

}  // namespace kvroof
