#include "sim/policy/token_scores.hpp"

#include "sim/core/error.hpp"

namespace kvroof {

std::span<const float> token_scores(const PolicySpec& spec, const PolicyContext& context) {
  const std::string_view file = spec.find("file").value_or("none");
  if (file == "none" && spec.token_scores == nullptr) return {};
  const auto refuse = [&](std::string_view why) {
    throw usage_error(fmt::format("policy {}: file={} {}", spec.name, file, why));
  };
  if (spec.token_scores == nullptr) refuse("was not read");
  const TokenScores& all = *spec.token_scores;
  if (all.layers != context.layers || all.heads != context.storage_heads) {
    refuse(fmt::format("has {} layers of {} heads, the model {} of {}", all.layers, all.heads, context.layers,
                       context.storage_heads));
  }
  const auto own = all.sequences.size() > 1 ? all.sequences.find(context.sequence) : all.sequences.begin();
  if (own == all.sequences.end()) {
    refuse(fmt::format("has scores of {} sequences, and none of sequence {}", all.sequences.size(), context.sequence));
  }
  const std::vector<float>& scores = own->second;
  const std::size_t tokens = scores.size() / all.layers / all.heads;
  if (tokens != context.prompt) {
    refuse(fmt::format("has scores of {} tokens, and the prompt of sequence {} has {}", tokens, context.sequence,
                       context.prompt));
  }
  return scores;
}

}  // namespace kvroof
