// RowMoves: rows that change their slots, gathered over the heads of a cache and moved by one launch.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/device_cache.hpp"
#include "kernels/cuda/launches.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof::cuda {

class RowMoves {
 public:
  RowMoves(Stream& stream, Launches& launches) : stream_(stream), launches_(launches) {}
  // Of the caches whose rows are moved. `state_columns` of a policy go with each row.
  void set_format(const CacheFormat& format, std::uint32_t state_columns) {
    format_ = format;
    state_columns_ = state_columns;
  }

  // The caches must live until the launch. A launch makes all of its moves at once: none may need what another did.
  void add(const DeviceCache& from, const DeviceCache& to, std::uint32_t head, std::span<const SlotMove> moves);
  // Bytes of the policy's state, read and written, that the next launch declares besides.
  void add_state_bytes(std::uint64_t bytes) { state_bytes_ += bytes; }
  [[nodiscard]] bool empty() const { return rows_.empty(); }

  // Moves what was added. `layer` -1: of all of them. Each move counts as so many bytes read and written.
  void launch(std::int32_t layer, std::uint64_t counted_bytes);
  // Moves within a cache; [heads]. Those that need what earlier ones did, as where a window's oldest and a policy's
  // victims leave together, go with the next launch.
  void launch_in_order(const DeviceCache& cache, std::int32_t layer, std::uint64_t counted_bytes,
                       std::span<std::span<const SlotMove>> moves_of_heads);
  void forget();

  [[nodiscard]] DeviceBuffer& memory() { return memory_; }  // of its tables

 private:
  Stream& stream_;
  Launches& launches_;
  CacheFormat format_;
  std::uint32_t state_columns_ = 0;
  std::vector<CacheSlots> from_, to_;  // of each head that has any
  std::vector<RowMove> rows_;
  std::uint64_t state_bytes_ = 0;
  DeviceBuffer memory_;
};

}  // namespace kvroof::cuda
