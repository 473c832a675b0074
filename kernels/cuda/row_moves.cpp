#include "kernels/cuda/row_moves.hpp"

#include <algorithm>

#include "kernels/cuda/device_tables.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"

namespace kvroof::cuda {

void RowMoves::add(const DeviceCache& from, const DeviceCache& to, std::uint32_t head,
                   std::span<const SlotMove> moves) {
  if (moves.empty()) return;
  const auto number = static_cast<std::uint32_t>(from_.size());
  from_.push_back(from.slots(head));
  to_.push_back(to.slots(head));
  for (const SlotMove& m : moves) rows_.push_back({number, m.from.value, m.to.value});
}

void RowMoves::forget() {
  from_.clear();
  to_.clear();
  rows_.clear();
  state_bytes_ = 0;
}

void RowMoves::launch(std::int32_t layer, std::uint64_t counted_bytes) {
  if (rows_.empty()) return;
  DeviceTables tables(stream_, memory_);
  const std::size_t from_at = tables.add(std::span<const CacheSlots>(from_));
  const std::size_t to_at = tables.add(std::span<const CacheSlots>(to_));
  const std::size_t rows_at = tables.add(std::span<const RowMove>(rows_));
  tables.send();
  MoveArguments a;
  a.from = tables.at<CacheSlots>(from_at);
  a.to = tables.at<CacheSlots>(to_at);
  a.rows = tables.at<RowMove>(rows_at);
  a.moves = static_cast<std::uint32_t>(rows_.size());
  a.key_row_bytes = format_.key_row_bytes();
  a.value_row_bytes = format_.value_row_bytes();
  a.scales = format_.has_scales();
  a.state_columns = state_columns_;
  DeclaredWork work = moved(Cause::kCompaction, 2 * counted_bytes * a.moves);
  work.bytes.add(Cause::kScores, state_bytes_);
  forget();
  const Launch launch(launches_, {"compact", layer, Cause::kCompaction, work});
  run_moves(stream_, a);
}

void RowMoves::launch_in_order(const DeviceCache& cache, std::int32_t layer, std::uint64_t counted_bytes,
                               std::span<std::span<const SlotMove>> moves_of_heads) {
  const auto made = [](std::span<const SlotMove> moves) { return moves.empty(); };
  while (!std::ranges::all_of(moves_of_heads, made)) {
    for (std::uint32_t h = 0; h < moves_of_heads.size(); ++h) {
      std::span<const SlotMove>& left = moves_of_heads[h];
      const std::size_t count = moves_at_once(left);
      add(cache, cache, h, left.first(count));
      left = left.subspan(count);
    }
    launch(layer, counted_bytes);
  }
}

}  // namespace kvroof::cuda
