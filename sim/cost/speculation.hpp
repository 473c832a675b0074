// Speculative decoding (Leviathan et al., ICML 2023, arXiv:2211.17192; Chen et al., arXiv:2302.01318): something cheap
// drafts a few tokens, one step of the target passes all of them, and those up to the first that it would not have
// drawn stay, with one of the target's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/cost/weight_format.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

// What makes the drafted tokens.
struct Draft {
  std::string name;                    // as it was asked for: "llama-3.2-1b", "mtp", "ngram"
  std::optional<ModelShape> shape;     // passes one token after another; nothing: drafts take no time and no memory
  std::optional<WeightFormat> weights; // nothing: as the target's
  bool of_target = false;              // a layer that reads the target's last hidden state and shares its embedding
  bool own_head = true;                // of a layer of the target: it has a head of its own

  // Parameters that it holds beside the target's.
  [[nodiscard]] std::uint64_t parameters() const;
};

struct Speculation {
  std::uint32_t tokens = 1;  // drafted a step, at least 1: num_speculative_tokens in vLLM, gamma in the paper
  double acceptance = 0;     // chance that a drafted token stays, those before it having stayed (alpha); 0 to 1
  Draft draft;

  // Those that a sequence is longer by after a step, on average: (1 − α^(γ+1)) / (1 − α), equation 1 of the paper.
  [[nodiscard]] double tokens_a_step() const;
  // Steps in which an answer makes so many tokens, on average: the last step is cut at the answer's end, so that they
  // are more than tokens / tokens_a_step().
  [[nodiscard]] double steps_of(std::uint64_t tokens_made) const;
  // What the target passes and keeps in a step.
  [[nodiscard]] StepTokens step_tokens() const { return {tokens + 1, tokens_a_step()}; }
};

// A layer like the target's last one beside its embedding and head, as DeepSeek-V3 is trained with (prediction of
// several tokens, arXiv:2412.19437, 2.2): a projection of embedding and hidden state, joined, to one; and the layer.
Draft mtp_draft(const ModelShape& target);
// The same with a dense layer, as wide as the experts that one token passes, in 16 bits (EAGLE, arXiv:2401.15077).
Draft eagle_draft(const ModelShape& target);
// EAGLE-3 (arXiv:2503.01840): both inputs go into q, k and v without that projection, and a head of its own has the
// 32,000 most frequent tokens. What joins three hidden states of the target once a step is left out.
Draft eagle3_draft(const ModelShape& target);
// A model of its own, in the type of its checkpoint.
Draft model_draft(const ModelShape& model, const std::string& name);
// Tokens that are looked up in what is there (n-grams, suffixes).
Draft free_draft(const std::string& name);

}  // namespace kvroof
