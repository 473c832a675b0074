// Questions that are asked one after the other of one context: greedy answers, closed loop. The cache and its policy go
// on through all of them, so that what was evicted after the first is gone for the second.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/engine/backend.hpp"
#include "sim/model/config_json.hpp"

namespace kvroof {

using TokenList = std::vector<std::int64_t>;  // ids

struct AskedPrompt {
  TokenList ids;  // prefilled, at least one; the policy then evicts
  // Fed by decode steps of their own, at least one: the first behind the prompt, the others behind the answer before
  // them. The first alone may be empty: the prompt asks it.
  std::vector<TokenList> questions;
};

// Ids of each answer, [prompts][questions]. It ends with an end-of-text token, which is its last and is not fed before
// the next question, with `max_new_tokens`, at least one, or where the context of the model does: what is asked after
// that has empty answers. Prompts run as one batch, become sequences first_sequence, first_sequence + 1, …, and are
// released as they end. Keyformer's T is the number of all tokens behind the prompt, as many as there may be.
// `on_token`, which may be empty, is called for each token of an answer. Throws Error where logits are not finite.
std::vector<std::vector<TokenList>> answer_questions(Backend& backend, const ModelConfig& config,
                                                     std::span<const AskedPrompt> batch, std::uint32_t max_new_tokens,
                                                     std::uint32_t first_sequence,
                                                     const std::function<void()>& on_token);

}  // namespace kvroof
