// AttendedOutput: attention outputs over the tokens that one head attends to, for a few successive queries at once.
//
// What a head holds changes by a token or so a step, so the rows of v that these queries share are gathered once and
// stay in the first cache while every query passes over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/ids.hpp"

namespace kvroof {

class AttendedOutput {
 public:
  static constexpr std::uint32_t kMostRows = 8;  // queries that wait at once

  // Adds the query at `position`, which attends to token attended[s] with weights[g][s], s < attended.size(), for each
  // of the group's query heads. False, and nothing is added, when compute() has to come first.
  bool add(TokenPos position, std::span<const TokenPos> attended, std::span<const float> weights, std::uint32_t group);

  // Queries that wait, in the order they were added.
  [[nodiscard]] std::span<const TokenPos> queries() const { return queries_; }

  // The outputs of all that wait, [queries, group, v_width], which are then forgotten: Σ_s weights[g][s] ·
  // values.row(attended[s]). Valid until the next call.
  std::span<const float> compute(const RowsView& values);

 private:
  void start(std::span<const TokenPos> attended, std::uint32_t group);
  bool find_columns(std::span<const TokenPos> attended);

  std::uint32_t group_ = 1;
  std::vector<TokenPos> queries_;
  std::vector<TokenPos> columns_;  // tokens that any of the queries attends to
  std::size_t first_slots_ = 0;    // of the first query, whose slot s has column s
  std::vector<TokenPos> by_slot_;  // what the last query attended to
  std::vector<std::uint32_t> column_of_slot_;
  std::vector<std::size_t> moved_;  // slots whose column is not their number
  std::size_t stride_ = 0;          // columns that there is room for
  std::vector<float> weights_;      // [queries, group, stride]; 0 where a query does not attend
  std::vector<std::byte> rows_;
  std::vector<float> partial_, outputs_;
};

}  // namespace kvroof
