// InterleavedRows: exponentials of a block of query rows, those of eight successive queries side by side by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/aligned_vector.hpp"

namespace kvroof {

class InterleavedRows {
 public:
  // The layer whose rows follow. Buffers only grow, so that a later layer allocates nothing.
  void start_layer(std::uint32_t query_heads, std::uint32_t tokens, std::uint32_t max_rows) {
    heads_ = query_heads;
    tokens_ = tokens;
    const std::size_t rows = (max_rows + kInterleavedRows - 1) / kInterleavedRows * kInterleavedRows;
    if (values_.size() < rows * heads_ * tokens_) values_.resize(rows * heads_ * tokens_);
    if (made_.size() < rows * heads_) made_.resize(rows * heads_);
  }
  // The first row of the block that follows.
  void start_block(std::uint32_t first) { first_ = first; }

  // The first of the rows that lie beside that of `position`.
  [[nodiscard]] std::uint32_t first_beside(std::uint32_t position) const {
    return position - (position - first_) % kInterleavedRows;
  }
  // Of one query head: [tokens][kInterleavedRows], of the tokens up to the last row's own; what a row cannot see yet
  // has any value. `first` is the first of its rows.
  [[nodiscard]] const float* values(std::uint32_t first, std::uint32_t head) const {
    return values_.data() + offset(first, head);
  }
  [[nodiscard]] float* values(std::uint32_t first, std::uint32_t head) { return values_.data() + offset(first, head); }
  // Whether weights over a part of the row may be made of its exponentials (weights_of_exponentials), or only of the
  // logits.
  [[nodiscard]] bool shares(std::uint32_t position, std::uint32_t head) const { return made(position, head).shares; }
  // The exponential of the row's sink, 0 where there is none.
  [[nodiscard]] float sink(std::uint32_t position, std::uint32_t head) const { return made(position, head).sink; }
  void set_made(std::uint32_t position, std::uint32_t head, RowExponentials made) {
    made_[cell(position, head)] = made;
  }

 private:
  [[nodiscard]] const RowExponentials& made(std::uint32_t position, std::uint32_t head) const {
    return made_[cell(position, head)];
  }
  [[nodiscard]] std::size_t cell(std::uint32_t position, std::uint32_t head) const {
    return std::size_t{position - first_} * heads_ + head;
  }
  [[nodiscard]] std::size_t offset(std::uint32_t first, std::uint32_t head) const {
    return (std::size_t{first - first_} * heads_ + std::size_t{head} * kInterleavedRows) * tokens_;
  }

  std::size_t heads_ = 0, tokens_ = 0;
  std::uint32_t first_ = 0;
  // Aligned, so that a token's rows lie in one line of the cache.
  AlignedVector<float> values_;       // [rows / kInterleavedRows][query_heads][tokens][kInterleavedRows]
  std::vector<RowExponentials> made_;  // [rows, query_heads]
};

}  // namespace kvroof
