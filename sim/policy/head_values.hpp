// Numbers for each KV head of a model that a user's file gives: gates of retrieval heads, weights of capacities.
#pragma once

#include <span>
#include <string_view>

#include "sim/core/error.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

// A line for each layer, in it a number ≥ 0 for each KV head, separated by tabs, blanks or commas; empty lines and
// lines that begin with # are skipped. Fails, naming the line, where a word is no such number or a line has more or
// fewer numbers than the first.
Result<std::vector<std::vector<float>>> parse_head_values(std::string_view text);

// Those of the heads of a layer; empty where the specification names no file. Throws Error (usage) where the file has
// other layers or heads than the model, or was not read.
std::span<const float> head_values(const PolicySpec& spec, const PolicyContext& context);

// Whether the policy is told what each head of the model holds, or each token of a head is worth, so that one head
// cannot stand for all of them.
bool names_heads(const PolicySpec& spec);

}  // namespace kvroof
