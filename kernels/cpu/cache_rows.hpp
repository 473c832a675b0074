// CacheRows: the rows of k, v and q of one layer of one sequence, as its cache or the prompt buffer holds them.
#pragma once

#include <span>

#include "kernels/cpu/kv_cache.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof {

class CacheRows final : public HeadRowsSource {
 public:
  // Of a prompt that lies in `buffer`, token i in slot i; q is [n, query heads, k_width].
  CacheRows(const KvCache& buffer, std::uint32_t n, std::span<const float> q, std::uint32_t group)
      : cache_(buffer), rows_(n), q_(q), group_(group), in_prompt_(true) {}
  // Of a cache whose slots are the policy's.
  explicit CacheRows(const KvCache& cache) : cache_(cache) {}

  [[nodiscard]] HeadRows rows(HeadId head) const override {
    const std::uint32_t count = in_prompt_ ? rows_ : cache_.capacity(head);
    const RowsView keys = cache_.keys(head, count);
    HeadRows rows{keys, cache_.values(head, count), in_prompt_, {}};
    if (q_.empty()) return rows;
    const std::size_t width = group_ * keys.width;
    rows.queries = {reinterpret_cast<const std::byte*>(q_.data() + head.value * width), DType::kF32, q_.size() / rows_,
                    width, rows_};
    return rows;
  }

 private:
  const KvCache& cache_;
  std::uint32_t rows_ = 0;  // of the prompt
  std::span<const float> q_;
  std::uint32_t group_ = 1;
  bool in_prompt_ = false;
};

}  // namespace kvroof
