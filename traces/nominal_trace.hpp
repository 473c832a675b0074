// A trace of drawn q, k and v, for questions about sizes and times where no recording is at hand.
#pragma once

#include <cstdint>
#include <filesystem>

namespace kvroof {

struct NominalTrace {
  std::uint32_t query_heads = 1;  // of a layer; they share one KV head
  std::uint32_t layers = 1;       // all alike
  std::uint32_t prompt = 1;       // tokens
  std::uint32_t output = 0;       // decoded tokens
  std::uint64_t seed = 0;

  bool operator==(const NominalTrace&) const = default;
};

// One sequence. Attention is like a model's in kind alone: a few tokens that many queries look at, among
// them the first, more weight on recent tokens, and noise. What a policy keeps of it says nothing about quality; how
// much it keeps, reads and moves follows from its budget. Same arguments, same bytes. Throws Error when the folder
// exists or cannot be written.
void write_nominal_trace(const std::filesystem::path& path, const NominalTrace& trace);

}  // namespace kvroof
