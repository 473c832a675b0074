// Rows that change their slots.
#include <algorithm>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_tables.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"

namespace kvroof::cuda {

void CudaBackend::move(const DeviceCache& from, const DeviceCache& to, std::uint32_t head,
                       std::span<const SlotMove> moves) {
  if (moves.empty()) return;
  const auto number = static_cast<std::uint32_t>(moves_.from.size());
  moves_.from.push_back(from.slots(head));
  moves_.to.push_back(to.slots(head));
  for (const SlotMove& m : moves) moves_.rows.push_back({number, m.from.value, m.to.value});
}

void CudaBackend::forget_moves() {
  moves_ = {};
  chosen_bytes_ = 0;
  static_cast<void>(synchronize(stream_));  // what it would say is less than that memory was refused
}

void CudaBackend::launch_moves(std::int32_t layer, std::uint64_t counted_bytes) {
  const Moves moves = std::exchange(moves_, {});
  if (moves.rows.empty()) return;
  DeviceTables tables(stream_, move_tables_);
  const std::size_t from_at = tables.add(std::span<const CacheSlots>(moves.from));
  const std::size_t to_at = tables.add(std::span<const CacheSlots>(moves.to));
  const std::size_t rows_at = tables.add(std::span<const RowMove>(moves.rows));
  tables.send();
  MoveArguments a;
  a.from = tables.at<CacheSlots>(from_at);
  a.to = tables.at<CacheSlots>(to_at);
  a.rows = tables.at<RowMove>(rows_at);
  a.moves = static_cast<std::uint32_t>(moves.rows.size());
  a.key_row_bytes = format_.key_row_bytes();
  a.value_row_bytes = format_.value_row_bytes();
  a.scales = format_.has_scales();
  a.state_columns = device_policy_ && device_policy_->keeps_state() ? format_.state_columns : 0;
  DeclaredWork work = moved(Cause::kCompaction, 2 * counted_bytes * a.moves);
  work.bytes.add(Cause::kScores, moves.state_bytes);
  const Launch launch(launches_, {"compact", layer, Cause::kCompaction, work});
  run_moves(stream_, a);
}

// A launch makes all of its moves at once. One that needs what an earlier one did, as where a window's oldest and a
// policy's victims leave together, goes with the next launch.
void CudaBackend::move_in_order(const LayerState& state, LayerId layer,
                                std::span<std::span<const SlotMove>> moves_of_heads) {
  const auto made = [](std::span<const SlotMove> moves) { return moves.empty(); };
  while (!std::ranges::all_of(moves_of_heads, made)) {
    for (std::uint32_t h = 0; h < moves_of_heads.size(); ++h) {
      std::span<const SlotMove>& left = moves_of_heads[h];
      const std::size_t count = moves_at_once(left);
      move(state.cache, state.cache, h, left.first(count));
      left = left.subspan(count);
    }
    launch_moves(layer_number(layer), row_bytes());
  }
}

// A policy that gives a head more than was known: its rows move to larger memory.
void CudaBackend::grow(LayerState& state, LayerId layer, std::uint32_t head, std::uint32_t slots) {
  std::vector<std::uint32_t> capacities;
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    capacities.push_back(h == head ? slots : state.cache.capacity(h));
  }
  DeviceCache larger(format_, capacities);
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    std::vector<SlotMove> all(state.cache.capacity(h));  // a head's hole may lie anywhere
    for (std::uint32_t slot = 0; slot < all.size(); ++slot) all[slot] = {SlotId(slot), SlotId(slot)};
    move(state.cache, larger, h, all);
  }
  launch_moves(layer_number(layer), 0);  // memory is made, nothing is evicted
  state.cache = std::move(larger);
}

}  // namespace kvroof::cuda
