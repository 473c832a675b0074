// What DeviceForward takes of the device's memory, beside what grows with the tokens of a pass.
#include <algorithm>

#include "kernels/cuda/device_forward.hpp"

namespace kvroof::cuda {

std::uint64_t DeviceForward::library_bytes(std::uint32_t tokens) const {
  const ModelShape& shape = model_.host().config.shape;
  const auto states = static_cast<std::uint32_t>(shape.state.values());
  const std::uint32_t widest = std::max({shape.hidden, shape.ffn, shape.heads * shape.v_head_dim, states});
  return library_linear_.most_bytes(tokens, widest, shape.ffn);
}

std::uint64_t DeviceForward::held_bytes() const {
  std::uint64_t bytes = library_linear_.held_bytes() + split_k_.bytes();
  for (const DeviceBuffer* buffer :
       {&inputs_, &cos_sin_, &x_, &projections_, &queries_, &attended_, &gates_, &activated_, &block_, &embedded_,
        &logits_, &choices_, &heads_done_, &routes_, &router_logits_, &expert_activated_, &expert_out_,
        &shared_factors_}) {
    bytes += buffer->bytes();
  }
  return bytes;
}

}  // namespace kvroof::cuda
