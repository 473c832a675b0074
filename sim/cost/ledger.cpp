// What a batch needs in memory, and the largest that fits.
#include <algorithm>
#include <cmath>

#include "sim/cost/cost.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Elements alive at once for one token: the residual and its norm, and the widest of attention and MLP.
u64 live_elements(const ModelShape& s) {
  const u64 q_and_out = u64{s.heads} * (u64{s.head_dim} + s.v_head_dim);
  const u64 k_and_v = u64{s.kv_heads} * (u64{s.head_dim} + s.v_head_dim);
  const u64 mlp = (s.mlp == MlpKind::kGated ? 3 : 2) * u64{s.ffn};
  return 2 * u64{s.hidden} + std::max(q_and_out + k_and_v, mlp);
}

// Exact below 2^53; more than an exabyte is one exabyte, so that sums cannot wrap around.
Bytes bytes_of(double bytes) { return Bytes(static_cast<u64>(std::llround(std::min(bytes, 1e18)))); }

}  // namespace

MemoryLedger CostModel::ledger(const ResidencySummary& residency, std::uint32_t batch) const {
  constexpr double kActivationBytes = 4;
  const auto row = static_cast<double>(row_bytes(shape_, types_.kv));
  const double rows = static_cast<double>(residency.peak_rows) * batch;
  const auto live = static_cast<double>(live_elements(shape_));
  MemoryLedger m;
  m.weights = weights_;
  m.kv_allocated = bytes_of(rows * row);
  m.policy_state = bytes_of(rows * static_cast<double>(residency.state_bytes_per_row));
  const double decode = batch * (live + shape_.vocab);
  // Sequences are prefilled one after the other.
  const double prompt = residency.prompt;
  const double prefill = engine_.fused_attention ? prompt * live + shape_.vocab : 0;
  m.activations = bytes_of(kActivationBytes * std::max(decode, prefill));
  const double compacted = residency.evicts ? static_cast<double>(residency.layer_prompt_rows) * row : 0;
  m.prefill_transient = bytes_of(compacted + engine_.probability_copies * batch * shape_.heads * prompt * prompt * 2);
  m.reserve = bytes_of(engine_.reserve_gib * kGiB + engine_.reserve_fraction * static_cast<double>(capacity_.value));
  m.capacity = capacity_;
  return m;
}

std::uint32_t CostModel::largest_batch(const ResidencySummary& residency) const {
  // The ledger grows with the batch: bisect between one that fits and one that does not.
  if (!ledger(residency, 1).fits()) return 0;
  if (ledger(residency, kMaxBatch).fits()) return kMaxBatch;
  std::uint32_t fits = 1;
  std::uint32_t too_many = kMaxBatch;
  while (too_many - fits > 1) {
    const std::uint32_t middle = fits + (too_many - fits) / 2;
    (ledger(residency, middle).fits() ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace kvroof
