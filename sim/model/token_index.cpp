#include "sim/model/token_index.hpp"

#include "sim/core/error.hpp"

namespace kvroof {

std::string index_problem(const TokenIndex& index, std::uint32_t attending, std::uint32_t q_rank) {
  if (!index) return index == TokenIndex{} ? "" : "sizes of an index are there, but index_heads is not";
  constexpr std::uint32_t kMost = 1U << 12;
  if (index.heads > kMost || index.dim == 0 || index.dim > kMost) {
    return fmt::format("index_heads and index_dim are {} and {}, expected 1 to {} each", index.heads, index.dim, kMost);
  }
  if (index.tokens == 0 || index.tokens > 1U << 30) {
    return fmt::format("index_tokens is {}, expected 1 to 2^30 that a query reads", index.tokens);
  }
  if (index.layers == 0 || index.layers > attending) {
    return fmt::format("index_layers is {}, expected 1 to the {} that attend", index.layers, attending);
  }
  if (q_rank > 1U << 20) return fmt::format("latent_q_rank is {}, expected at most {}", q_rank, 1U << 20);
  return q_rank > 0 ? "" : "an index makes its queries of a latent q, but latent_rank or latent_q_rank is 0";
}

}  // namespace kvroof
