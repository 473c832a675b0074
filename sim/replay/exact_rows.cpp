#include "sim/replay/exact_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "sim/attention/key_tile.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

// Rows of k or v that stay in the first cache while the queries pass over them.
constexpr std::uint32_t kTileRows = KeyTile::kKeys;
constexpr std::uint32_t kTaskRows = kInterleavedRows;  // query rows of one task

// Memory of one thread.
struct Scratch {
  std::vector<std::byte> rows;
  std::vector<float> partial;
  KeyTile tile;
  std::vector<const float*> queries;
};
thread_local Scratch scratch;

// Rows [begin, end) of one head, copied side by side: with those of other heads between them few would fit in the
// cache.
RowsView tile_of(const RowsView& all, std::uint32_t begin, std::uint32_t end) {
  const std::size_t row_bytes = all.width * size_of(all.type);
  scratch.rows.resize(kTileRows * row_bytes);
  for (std::uint32_t i = begin; i < end; ++i) {
    std::memcpy(scratch.rows.data() + (i - begin) * row_bytes, all.row(i), row_bytes);
  }
  return {scratch.rows.data(), all.type, all.width, all.width, end - begin};
}

RowsView rows_of(const std::vector<std::byte>& data, DType type, std::uint32_t heads, std::uint32_t head,
                 std::uint32_t width, std::size_t count) {
  return {data.data() + static_cast<std::size_t>(head) * width * size_of(type), type,
          static_cast<std::size_t>(heads) * width, width, count};
}

}  // namespace

InfiniteLogit::InfiniteLogit(std::uint32_t query_head, std::uint32_t token, bool is_of_query)
    : Error(fmt::format("query head {}, token {}: {}", query_head, token,
                        is_of_query ? "q holds NaN or infinity" : "q·k is beyond the range of float")),
      head(query_head),
      position(token),
      of_query(is_of_query) {}

std::uint32_t rows_of_block(const TraceLayer& layer, const LayerKeysValues& keys_values) {
  constexpr std::uint32_t kMostRows = 32;
  constexpr std::uint64_t kLeastBytes = 4U << 20;
  const std::uint64_t room = std::max<std::uint64_t>(kLeastBytes, (keys_values.k.size() + keys_values.v.size()) / 5);
  const std::uint64_t rows = room / ExactRows::bytes_per_row(layer, keys_values.tokens);
  const std::uint64_t whole = rows > kTaskRows ? rows / kTaskRows * kTaskRows : rows;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(whole, 1, kMostRows));
}

std::uint64_t ExactRows::bytes_per_row(const TraceLayer& layer, std::uint32_t tokens) {
  const std::uint64_t elements = 3 * std::uint64_t{tokens} + layer.k_width + layer.v_width + 4;
  return elements * layer.query_heads * sizeof(float);
}

void ExactRows::start_layer(const TraceLayer& layer, DType type, const LayerKeysValues& keys_values,
                            std::uint32_t max_rows) {
  layer_ = &layer;
  keys_values_ = &keys_values;
  type_ = type;
  const std::size_t heads = layer.query_heads;
  row_stride_ = heads * keys_values.tokens;
  // Buffers only grow, so that a later layer allocates nothing.
  const auto grow = [](auto& buffer, std::size_t size) {
    if (buffer.size() < size) buffer.resize(size);
  };
  grow(q_, max_rows * heads * layer.k_width);
  grow(logits_, max_rows * row_stride_);
  grow(weights_, max_rows * row_stride_);
  grow(outputs_, max_rows * heads * layer.v_width);
  interleaved_.start_layer(layer.query_heads, keys_values.tokens, max_rows);
  grow(masses_, max_rows * heads);
  grow(sinks_, max_rows * heads);
  grow(norms_, max_rows * heads);
  while (positions_.size() < keys_values.tokens) positions_.emplace_back(static_cast<std::uint32_t>(positions_.size()));
}

RowsView ExactRows::keys_of(std::uint32_t query_head) const {
  const std::uint32_t kv_head = query_head / (layer_->query_heads / layer_->kv_heads);
  return rows_of(keys_values_->k, type_, layer_->kv_heads, kv_head, layer_->k_width, keys_values_->tokens);
}

RowsView ExactRows::values_of(std::uint32_t query_head) const {
  const std::uint32_t kv_head = query_head / (layer_->query_heads / layer_->kv_heads);
  return rows_of(keys_values_->v, type_, layer_->kv_heads, kv_head, layer_->v_width, keys_values_->tokens);
}

// As many as leave each thread two tasks, since they share what is made of the keys: in whole eights.
std::uint32_t ExactRows::rows_of_task(std::uint32_t count) const {
  const std::uint32_t tasks = std::max(1U, 2 * pool_.threads() / layer_->kv_heads);
  return (count + tasks * kTaskRows - 1) / (tasks * kTaskRows) * kTaskRows;
}

// Rows of one KV head, a few at a time: logits, and what is made of them.
template <class MakeLogits>
void ExactRows::for_each_task(std::uint32_t first, std::uint32_t count, RowsWanted wanted,
                              const MakeLogits& make_logits) {
  first_ = first;
  count_ = count;
  interleaved_.start_block(first);
  const std::uint32_t rows = rows_of_task(count);
  const std::uint32_t chunks = (count + rows - 1) / rows;
  pool_.parallel_for(std::size_t{layer_->kv_heads} * chunks, [&](std::size_t task) {
    const auto kv_head = static_cast<std::uint32_t>(task / chunks);
    const std::uint32_t begin = first + static_cast<std::uint32_t>(task % chunks) * rows;
    const std::uint32_t end = std::min(begin + rows, first + count);
    make_logits(kv_head, begin, end);
    if (!wanted.weights && !wanted.exponentials) return;
    const bool by_row = !wanted.exponentials || wanted.masses;
    for (std::uint32_t position = begin; by_row && position < end; ++position) weights_of(kv_head, position, wanted);
    for (std::uint32_t from = begin; wanted.exponentials && from < end; from += kTaskRows) {
      const std::uint32_t to = std::min(from + kTaskRows, end);
      by_row ? interleave_rows(kv_head, from, to) : interleave_exponentials(kv_head, from, to);
    }
    if (wanted.outputs) outputs_of(kv_head, begin, end);
  });
}

void ExactRows::compute(std::uint32_t first, std::uint32_t count, std::span<const std::byte> q, RowsWanted wanted) {
  logits_at_ = logits_.data();
  take_queries(count, q);
  for_each_task(first, count, wanted, [&](std::uint32_t kv_head, std::uint32_t from, std::uint32_t to) {
    logits_of(kv_head, from, to);
    for (std::uint32_t position = from; position < to; ++position) finish_logits(kv_head, position);
  });
}

void ExactRows::take_queries(std::uint32_t count, std::span<const std::byte> q) {
  convert_to_float(type_, q.data(), std::span(q_).first(std::size_t{count} * layer_->query_heads * layer_->k_width));
}

void ExactRows::compute_from_logits(std::uint32_t first, std::uint32_t count, std::span<const float> logits,
                                    std::size_t stride, RowsWanted wanted) {
  check(stride == row_stride_ && logits.size() >= count * stride, "rows of logits as ExactRows lays them out");
  logits_at_ = logits.data();
  for_each_task(first, count, wanted, [](std::uint32_t, std::uint32_t, std::uint32_t) {});
}

void ExactRows::logits_of(std::uint32_t kv_head, std::uint32_t first, std::uint32_t last) {
  const std::uint32_t group = layer_->query_heads / layer_->kv_heads;
  const std::size_t width = layer_->k_width;
  const RowsView keys = rows_of(keys_values_->k, type_, layer_->kv_heads, kv_head, layer_->k_width, last);
  const LogitRule rule{layer_->scale, layer_->softcap};
  for (std::uint32_t begin = first_visible(first) / kTileRows * kTileRows; begin < last; begin += kTileRows) {
    scratch.tile.load(keys.slice(begin, std::min(begin + kTileRows, last) - begin));
    // What a row does not see of the tile is written over when it is finished.
    const std::uint32_t from = std::max(first, begin);
    scratch.queries.clear();
    for (std::uint32_t position = from; position < last; ++position) {
      for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        scratch.queries.push_back(q_.data() + cell(position, head) * width);
      }
    }
    scratch.partial.resize(scratch.queries.size() * kTileRows);
    compute_logits(scratch.queries, scratch.tile, rule, scratch.partial);
    const float* of_tile = scratch.partial.data();
    for (std::uint32_t position = from; position < last; ++position) {
      const std::uint32_t end = std::min(begin + kTileRows, position + 1);
      for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head, of_tile += kTileRows) {
        std::copy_n(of_tile, end - begin, logits_.data() + offset(position, head) + begin);
      }
    }
  }
}

std::span<float> ExactRows::visible_part(std::vector<float>& rows, std::uint32_t position, std::uint32_t head,
                                         float hidden) {
  const std::span<float> row = std::span(rows).subspan(offset(position, head), std::size_t{position} + 1);
  const std::uint32_t first = first_visible(position);
  std::fill_n(row.begin(), first, hidden);
  return row.subspan(first);
}

void ExactRows::finish_logits(std::uint32_t kv_head, std::uint32_t position) {
  const std::uint32_t group = layer_->query_heads / layer_->kv_heads;
  for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::span<float> logits = visible_part(logits_, position, head, -std::numeric_limits<float>::infinity());
    if (!layer_->alibi_slopes.empty()) {
      add_alibi(std::span(positions_).subspan(first_visible(position), logits.size()), TokenPos(position),
                layer_->alibi(head), logits);
    }
    // One sentence instead of scores of NaN. All bits of the exponent are set where a float is not finite.
    constexpr std::uint32_t kExponent = 0x7f800000U;
    std::uint32_t infinite = 0;
    for (const float x : logits) infinite |= (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent ? 1U : 0U;
    if (infinite != 0) {
      const bool of_query = !std::ranges::all_of(query(position, head), [](float x) { return std::isfinite(x); });
      throw InfiniteLogit(head, position, of_query);
    }
  }
}

void ExactRows::weights_of(std::uint32_t kv_head, std::uint32_t position, RowsWanted wanted) {
  const std::uint32_t group = layer_->query_heads / layer_->kv_heads;
  for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::span<float> weights = visible_part(weights_, position, head, 0);
    const std::span<const float> row(logits(position, head) + first_visible(position), weights.size());
    float& sink = sinks_[cell(position, head)];
    if (wanted.exponentials) {
      const RowExponentials made = kvroof::exponentials(row, weights, layer_->sink(head));
      interleaved_.set_made(position, head, made);
      sink = made.sink;
    } else {
      sink = softmax(row, weights, layer_->sink(head));
    }
    if (wanted.masses) masses_[cell(position, head)] = sum_of(weights);
  }
}

void ExactRows::interleave_rows(std::uint32_t kv_head, std::uint32_t first, std::uint32_t last) {
  const std::uint32_t group = layer_->query_heads / layer_->kv_heads;
  for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    std::array<const float*, kInterleavedRows> rows;
    for (std::uint32_t r = 0; r < kInterleavedRows; ++r) rows[r] = exponentials(std::min(first + r, last - 1), head);
    float* out = interleaved_.values(first, head);
    interleave(rows, first + 1, out);
    for (std::uint32_t token = first + 1; token < last; ++token) {
      float* of_token = out + std::size_t{token} * kInterleavedRows;
      for (std::uint32_t r = token - first; r < last - first; ++r) of_token[r] = rows[r][token];
    }
  }
}

// Where the rows themselves are not wanted.
void ExactRows::interleave_exponentials(std::uint32_t kv_head, std::uint32_t first, std::uint32_t last) {
  const std::uint32_t group = layer_->query_heads / layer_->kv_heads;
  for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    LogitRows rows;
    rows.first = first;
    rows.last = last;
    rows.sink = layer_->sink(head);
    for (std::uint32_t r = 0; r < kInterleavedRows; ++r) {
      const std::uint32_t position = std::min(first + r, last - 1);
      rows.rows[r] = logits(position, head);
      rows.first_visible[r] = first_visible(position);
    }
    const auto made = interleaved_exponentials(rows, interleaved_.values(first, head));
    for (std::uint32_t position = first; position < last; ++position) {
      interleaved_.set_made(position, head, made[position - first]);
    }
  }
}

void ExactRows::outputs_of(std::uint32_t kv_head, std::uint32_t first, std::uint32_t last) {
  const std::uint32_t group = layer_->query_heads / layer_->kv_heads;
  const std::size_t width = layer_->v_width;
  const RowsView values = values_of(kv_head * group);
  const auto output_of = [&](std::uint32_t position, std::uint32_t head) {
    return std::span(outputs_).subspan(cell(position, head) * width, width);
  };
  scratch.partial.resize(width);
  for (std::uint32_t position = first; position < last; ++position) {
    std::fill_n(output_of(position, kv_head * group).data(), group * width, 0.0F);
  }
  for (std::uint32_t begin = first_visible(first) / kTileRows * kTileRows; begin < last; begin += kTileRows) {
    RowsView tile = tile_of(values, begin, std::min(begin + kTileRows, last));
    for (std::uint32_t position = std::max(first, begin); position < last; ++position) {
      tile.count = std::min(begin + kTileRows, position + 1) - begin;
      for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        weighted_sum({weights(position, head) + begin, tile.count}, tile, scratch.partial);
        const std::span<float> out = output_of(position, head);
        for (std::size_t c = 0; c < width; ++c) out[c] += scratch.partial[c];
      }
    }
  }
  for (std::uint32_t position = first; position < last; ++position) {
    for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const std::span<float> out = output_of(position, head);
      const auto scale = static_cast<float>(1.0 / (mass(position, head) + static_cast<double>(sink(position, head))));
      for (float& x : out) x *= scale;
      norms_[cell(position, head)] = norm_of(out);
    }
  }
}

}  // namespace kvroof
