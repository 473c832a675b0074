#include "sim/model/compressed_rows.hpp"

#include "sim/model/model_shape.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

std::string rates_problem(const ModelShape& s) {
  const CompressedRows& c = s.compressed;
  if (c.rates.size() != s.layers) {
    return fmt::format("row_rates has {} entries, expected one for each of the {} layers", c.rates.size(), s.layers);
  }
  for (const std::uint32_t rate : c.rates) {
    if (rate > kMostTokensOfRow) return fmt::format("row_rates has {}, expected at most {}", rate, kMostTokensOfRow);
  }
  if (c.chosen_layers() != s.index.layers || (c.chosen_rate > 0) != static_cast<bool>(s.index)) {
    return fmt::format("{} layers have rows of row_chosen_rate {}, but index_layers is {}", c.chosen_layers(),
                       c.chosen_rate, s.index.layers);
  }
  if (s.layer_windows.size() != s.layers || std::ranges::count(s.layer_windows, 0U) > 0) {
    return "row_rates: every layer has a window beside its rows, but layer_windows does not say so";
  }
  return {};
}

}  // namespace

u64 shared_row_attention_parameters(const ModelShape& s) {
  const CompressedRows& c = s.compressed;
  const u64 hidden = s.hidden, q = u64{s.heads} * s.head_dim, q_rank = s.latent_q_rank;
  const u64 queries = hidden * q_rank + q_rank + q_rank * q;
  const u64 row = hidden * s.head_dim + s.head_dim;
  return queries + row + q * c.out_rank + u64{c.out_groups} * c.out_rank * hidden;
}

u64 compressor_parameters(const ModelShape& s) {
  u64 total = compressor_biases(s);
  for (const std::uint32_t rate : s.compressed.rates) {
    if (rate > 0) total += 2 * u64{s.hidden} * s.compressed.series(rate, s.head_dim) + s.head_dim;
  }
  const u64 keys = 2 * u64{s.hidden} * 2 * s.index.dim + s.index.dim;
  const u64 queries = u64{s.latent_q_rank} * s.index.heads * s.index.dim + u64{s.hidden} * s.index.heads;
  return total + s.index.layers * (keys + queries);
}

u64 compressor_biases(const ModelShape& s) {
  u64 total = s.index.layers * u64{s.compressed.chosen_rate} * 2 * s.index.dim;
  for (const std::uint32_t rate : s.compressed.rates) total += rate * s.compressed.series(rate, s.head_dim);
  return total;
}

u64 compressor_bytes(const ModelShape& s) {
  const CompressedRows& c = s.compressed;
  u64 elements = 0;
  for (const std::uint32_t rate : c.rates) {
    const u64 tokens = u64{rate} * (rate == c.chosen_rate ? 2 : 1);
    elements += tokens * 2 * c.series(rate, s.head_dim);
  }
  elements += s.index.layers * (2 * u64{c.chosen_rate}) * 2 * c.series(c.chosen_rate, s.index.dim);
  return elements * sizeof(float);
}

std::string compressed_problem(const ModelShape& s) {
  const CompressedRows& c = s.compressed;
  if (!c) return c == CompressedRows{} ? "" : "sizes of compressed rows are there, but row_rates is not";
  if (std::string problem = rates_problem(s); !problem.empty()) return problem;
  if (s.kv_heads != 1 || s.v_head_dim != s.head_dim) {
    return fmt::format("with row_rates a row is k and v of one KV head at once, but kv_heads is {} of {} and {}",
                       s.kv_heads, s.head_dim, s.v_head_dim);
  }
  if (s.latent() || !s.other.layers.empty() || s.sharing_layers > 0 || s.state.layers > 0 || s.attention_gate ||
      s.head_gate || s.qkv_bias || s.out_bias) {
    return "row_rates beside latent attention, other_layers, sharing_layers, states, gates or biases is not supported";
  }
  if (s.latent_q_rank == 0 || s.latent_q_rank > 1U << 20) {
    return fmt::format("latent_q_rank is {}, expected 1 to {} where row_rates is there", s.latent_q_rank, 1U << 20);
  }
  if (c.out_groups == 0 || s.heads % c.out_groups != 0 || c.out_rank == 0 || c.out_rank > 1U << 16) {
    return fmt::format("out_groups and out_rank are {} and {}, expected equal groups of the {} heads, of 1 to {} each",
                       c.out_groups, c.out_rank, s.heads, 1U << 16);
  }
  return {};
}

}  // namespace kvroof
