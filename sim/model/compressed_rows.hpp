// Layers that hold, beside a window of single tokens, rows that each stand for several tokens (DeepSeek-V4). A row is
// k and v at once, of one KV head; a learned mean of the tokens' projections makes it once all of them are there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace kvroof {

struct ModelShape;

inline constexpr std::uint32_t kMostTokensOfRow = 1U << 16;

struct CompressedRows {
  // Of each layer: tokens that a row beside its window stands for; 0: it has the window alone. Empty: no such model.
  std::vector<std::uint32_t> rates;
  // In layers of this rate an index chooses the rows that a query reads, with a key for each row, and a row is made of
  // twice as many tokens, half of them those of the row before; 0: there are none, and all rows are read.
  std::uint32_t chosen_rate = 0;
  // The output projection: each group of heads has a product of its own that makes so many elements, which another
  // product joins.
  std::uint32_t out_groups = 0, out_rank = 0;

  [[nodiscard]] explicit operator bool() const { return !rates.empty(); }
  [[nodiscard]] std::uint32_t rate(std::uint32_t layer) const { return rates.empty() ? 0 : rates[layer]; }
  [[nodiscard]] bool chooses(std::uint32_t layer) const { return rate(layer) > 0 && rate(layer) == chosen_rate; }
  [[nodiscard]] std::uint32_t chosen_layers() const {
    return chosen_rate == 0 ? 0 : static_cast<std::uint32_t>(std::ranges::count(rates, chosen_rate));
  }
  // Layers that have such rows.
  [[nodiscard]] std::uint32_t layers() const {
    return static_cast<std::uint32_t>(rates.size() - static_cast<std::size_t>(std::ranges::count(rates, 0U)));
  }
  // Elements that a token's projections for such rows are wide, k and v at once: two halves where rows overlap.
  [[nodiscard]] std::uint64_t series(std::uint32_t rate, std::uint64_t width) const {
    return rate == 0 ? 0 : (rate == chosen_rate ? 2 : 1) * width;
  }

  friend bool operator==(const CompressedRows&, const CompressedRows&) = default;
};

// Attention of one layer but for what makes compressed rows: q through its latent, the row of a token, the output in
// groups; without sinks.
std::uint64_t shared_row_attention_parameters(const ModelShape& shape);
// What makes compressed rows and their index, in all layers: two products of each token, its row and its weight in it,
// with a bias for each place in a row; a norm; and the index's queries and weights of heads.
std::uint64_t compressor_parameters(const ModelShape& shape);
std::uint64_t compressor_biases(const ModelShape& shape);  // of these, what is kept in 32 bits
// Bytes that compressors hold of a sequence in all layers, however long: projections and weights, in 32 bits, of the
// tokens that the next row is made of.
std::uint64_t compressor_bytes(const ModelShape& shape);

// Why no model can have such layers, or nothing.
std::string compressed_problem(const ModelShape& shape);

}  // namespace kvroof
