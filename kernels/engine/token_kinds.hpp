// What each token of a model's vocabulary is, for policies that treat kinds of tokens differently.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "kernels/engine/model.hpp"
#include "kernels/tokenizer/tokenizer.hpp"
#include "sim/policy/policy.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// By id. Special: tokens that give no text where special ones are skipped; punctuation: those of whose text nothing
// is left without white space and punctuation (ASCII punctuation and symbols, and Unicode's classes P).
std::vector<TokenKind> token_kinds(const Tokenizer& tokenizer);

// Of the tokens with these ids; ids outside of the vocabulary are other tokens.
void append_kinds(std::span<const TokenKind> by_id, std::span<const std::int64_t> ids, std::vector<TokenKind>& kinds);

// Gives the model the kinds of its folder's tokenizer.json if a policy asks for them; without such a file it has none.
void add_token_kinds(Model& model, std::span<const PolicySpec> policies);

// By position, of the sequences of a trace: ReplayOptions::token_kinds. Throws Error (usage) when called where the
// trace names no folder with a tokenizer.json, or has not the ids of all tokens. It outlives what is returned.
std::function<std::vector<TokenKind>(const TraceSequence&)> token_kinds_of(const TraceReader& trace);

}  // namespace kvroof
