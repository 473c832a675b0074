// The index of sparse attention: a small key of each cached token, by which a query chooses the tokens that attention
// reads (DeepSeek-V3.2, arXiv:2512.02556, section 2.1). Nothing is evicted; memory holds the keys beside the rows.
#pragma once

#include <cstdint>
#include <string>

#include "sim/core/kv_type.hpp"

namespace kvroof {

struct TokenIndex {
  std::uint32_t heads = 0;   // of the query that scores tokens; 0: there is no index, and attention reads every token
  std::uint32_t dim = 0;     // of those heads, and of the one key that a token has for all of them
  std::uint32_t tokens = 0;  // that a query reads at most
  std::uint32_t layers = 0;  // that choose; each of the others reads what the one before it chose (arXiv:2603.12201)

  [[nodiscard]] explicit operator bool() const { return heads > 0; }
  // As DeepSeek's own code and the engines keep it, whatever the type of the cache: FP8, a float32 scale for each 128.
  [[nodiscard]] KvBytes key() const { return {dim, sizeof(float) * ((dim + 127) / 128), 0}; }
  // Of `rows` tokens, counted in each of `all` layers.
  [[nodiscard]] KvBytes keys(std::uint64_t rows, std::uint32_t all) const {
    return heads == 0 ? KvBytes{} : key() * ((rows * layers + all / 2) / all);
  }
  // Of one layer that chooses, of a model of size `hidden` whose q comes from a latent of q_rank: the projections of q,
  // of the key and of a weight for each head, and the norm of the key.
  [[nodiscard]] std::uint64_t parameters(std::uint64_t hidden, std::uint64_t q_rank) const {
    return heads == 0 ? 0 : q_rank * heads * dim + hidden * (std::uint64_t{dim} + heads) + 2 * std::uint64_t{dim};
  }
  // Of one query and one key; a multiplication with its addition counts as two.
  [[nodiscard]] double operations() const { return 2.0 * heads * (dim + 1.0); }

  friend bool operator==(const TokenIndex&, const TokenIndex&) = default;
};

// Why no model can have this index beside `attending` layers and a latent q of `q_rank`, or nothing.
std::string index_problem(const TokenIndex& index, std::uint32_t attending, std::uint32_t q_rank);

}  // namespace kvroof
