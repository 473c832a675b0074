// What a refusal of device memory means for the run that met it.
#include <algorithm>

#include "kernels/cuda/cuda_backend.hpp"

namespace kvroof::cuda {
namespace {

constexpr std::string_view kWhoHoldsMemory = " before more is free; nvidia-smi says which processes hold memory";

}  // namespace

// Weights that fit by their sum may still miss the room of what lies between and beside them.
Error CudaBackend::refused_load(const OutOfDeviceMemory& refused) const {
  return Error(fmt::format("out of device memory while {} is loaded: {}", model_.name, refused.what()))
      .note(fmt::format("no batch fits{}", kWhoHoldsMemory));
}

// All that a prompt needs grows with its tokens: its rows in the caches of all layers, and the buffers of its pass.
Error CudaBackend::refused_prompt(const OutOfDeviceMemory& refused, const Sequence& sequence) {
  if (forward_ == nullptr) {
    return Error(fmt::format("out of device memory before the prompt of sequence {}: {}", sequence.id, refused.what()))
        .note(fmt::format("no prompt fits{}", kWhoHoldsMemory));
  }
  std::uint64_t held = prompt_buffer_.bytes() + forward_->held_bytes();
  for (const DeviceBuffer* buffer : pass_buffers()) held += buffer->bytes();
  std::uint64_t needed = 0;
  for (const LayerState& state : sequence.layers) {
    held += state.cache.bytes();
    for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
      needed += state.policy.most_rows(HeadId(h), sequence.most_tokens) * format_.slot_bytes();
    }
  }
  const std::uint64_t storage_heads = sequence.layers[0].policy.storage_heads();
  std::uint64_t of_pass = forward_->token_bytes() + storage_heads * format_.slot_bytes();
  if (device_policy_ && device_policy_->keeps_scores()) of_pass += sizeof(float) * shape().heads;  // log-sums
  std::uint64_t room = refused.free + held;
  if (sequence.states.bytes() == 0) room -= std::min(room, held_state_floats(shape()) * sizeof(float));
  const std::uint64_t bounded = std::min(room, forward_->library_bytes(sequence.prompt));
  const std::uint64_t fits = (room - bounded) / (needed / sequence.prompt + of_pass);
  const std::size_t before = sequences_.size() - 1;
  Error error(fmt::format("out of device memory at the prompt of sequence {} ({} tokens, {} to come) under {}: {}",
                          sequence.id, sequence.prompt, sequence.most_tokens - sequence.prompt, options_.policy.text(),
                          refused.what()));
  if (before > 0) {
    return std::move(error).note(
        fmt::format("a batch of {} fits; a policy with a smaller budget makes room for more", before));
  }
  if (fits == 0) return std::move(error).note(fmt::format("no prompt fits{}", kWhoHoldsMemory));
  return std::move(error).note(fmt::format("a prompt of about {} tokens fits, with as much to come in proportion",
                                           std::min<std::uint64_t>(fits, sequence.prompt - 1)));
}

// Caches are made with their prompts; a step needs room for its batch alone.
Error CudaBackend::refused_step(const OutOfDeviceMemory& refused) const {
  const std::size_t batch = active_.size();
  const std::uint64_t asked = std::max<std::uint64_t>(1, refused.asked);
  const std::uint64_t fits = std::min<std::uint64_t>(batch - 1, batch * refused.free / asked);
  return Error(fmt::format("out of device memory in a decode step of {} sequences under {}: {}", batch,
                           options_.policy.text(), refused.what()))
      .note(fits > 0 ? fmt::format("a batch of about {} fits", fits)
                     : std::string("shorter prompts, or a policy with a smaller budget, leave more"));
}

}  // namespace kvroof::cuda
