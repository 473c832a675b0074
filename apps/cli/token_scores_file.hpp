// The file of scores that policy `scores` takes.
#pragma once

#include <filesystem>
#include <memory>

#include "sim/core/error.hpp"
#include "sim/policy/token_scores.hpp"

namespace kvroof {

// A safetensors file with a tensor `scores` [layers, heads, tokens] of floats, or with `scores.0`, `scores.1` … without
// a gap, one for each sequence. Other tensors are not looked at. Fails with one sentence where there is none, or where
// shapes, types or values are no scores.
Result<std::shared_ptr<const TokenScores>> read_token_scores(const std::filesystem::path& path);

// Such a file: `scores` of one sequence, or `scores.0` … of several, which are numbered from 0. Throws Error.
void write_token_scores(const std::filesystem::path& path, const TokenScores& scores);

}  // namespace kvroof
