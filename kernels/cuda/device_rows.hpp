// DeviceRows: the rows of k, v and q of one layer of one sequence, copied to the host for a policy that asks for them.
#pragma once

#include <vector>

#include "kernels/cuda/device_cache.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof::cuda {

// A head's rows are copied when they are asked for, and are valid until those of another head are.
class DeviceRows final : public HeadRowsSource {
 public:
  // Of a prompt of n tokens that lies in `buffer`, token i in slot i; q is [n, query_heads, key_dim] on the device, of
  // which the last `last_queries` rows can be read.
  DeviceRows(Stream& stream, const CacheFormat& format, const DeviceCache& buffer, std::uint32_t n, const float* q,
             std::uint32_t query_heads, std::uint32_t last_queries);
  // Of a cache whose slots are the policy's.
  DeviceRows(Stream& stream, const CacheFormat& format, const DeviceCache& cache)
      : stream_(stream), format_(format), cache_(cache) {}

  [[nodiscard]] HeadRows rows(HeadId head) const override;

 private:
  // Rows of one head as the cache holds them; where they have scales, as floats.
  struct Copy {
    std::vector<std::byte> rows;
    std::vector<float> scales, floats;
  };
  RowsView read(const std::byte* rows, const float* scales, std::uint32_t dim, std::uint32_t row_bytes,
                std::uint32_t count, Copy& copy) const;

  Stream& stream_;
  const CacheFormat& format_;
  const DeviceCache& cache_;
  std::uint32_t tokens_ = 0;  // of the prompt
  std::uint32_t query_heads_ = 0, query_rows_ = 0;
  const float* q_ = nullptr;  // of the query rows, on the device
  mutable std::vector<float> queries_;  // [query rows, query heads, key_dim]
  mutable Copy keys_, values_;
};

}  // namespace kvroof::cuda
