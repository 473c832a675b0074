// Teacher forcing: the probabilities that a model under its back end's policy gives to tokens that are already known.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/engine/backend.hpp"

namespace kvroof {

// The first `prompt` ids are prefilled; each later one counts, and is fed by a decode step of its own, so that a policy
// evicts between them as it does while generating.
struct KnownSequence {
  std::span<const std::int64_t> ids;
  std::uint32_t prompt = 0;                // 1 ≤ prompt < ids.size()
  std::uint32_t requested_new_tokens = 0;  // ≥ ids.size() − prompt; Keyformer's T
};

// Of every id after the prompt, given those before it: its natural log-probability, and whether a greedy continuation
// would have had it. The first comes from the prompt alone.
struct ForcedTokens {
  std::vector<float> logprobs;
  std::vector<bool> greedy;
};

// Those of each sequence. They run as one batch, become first_sequence, first_sequence + 1, …, and are released as they
// end. `on_step`, which may be empty, is called with the number of tokens that were counted since the last call.
// Throws Error when logits are not finite.
std::vector<ForcedTokens> force_tokens(Backend& backend, std::uint32_t vocab, std::span<const KnownSequence> batch,
                                       std::uint32_t first_sequence,
                                       const std::function<void(std::size_t tokens)>& on_step);

}  // namespace kvroof
