#include "sim/replay/cache_view.hpp"

#include <algorithm>

#include "sim/core/kv_quantizer.hpp"
#include "traces/finite_elements.hpp"

namespace kvroof {
namespace {

thread_local std::vector<float> partial;

// Counts the distinct groups that the positions fall into.
class Groups {
 public:
  explicit Groups(std::uint64_t tokens) { seen().assign(tokens / kKiviGroup + 1, false); }
  void add(TokenPos position) {
    auto group = seen()[position.value / kKiviGroup];
    count_ += group ? 0U : 1U;
    group = true;
  }
  [[nodiscard]] std::uint64_t rows() const { return count_ * kKiviGroup; }

 private:
  static std::vector<bool>& seen() {
    thread_local std::vector<bool> groups;
    return groups;
  }
  std::uint64_t count_ = 0;
};

}  // namespace

AgedRows aged_rows(const AgedRowsOf& rows) {
  const std::uint64_t keys = kivi_packed_keys(rows.tokens), values = kivi_packed_values(rows.tokens);
  Groups groups(rows.tokens);
  AgedRows out;
  for (const TokenPos position : rows.positions) {
    if (position.value < keys) {
      groups.add(position);
    } else {
      ++out.keys16;
    }
    (position.value < values ? out.packed_values : out.values16) += 1;
  }
  out.packed_keys = groups.rows();
  return out;
}

AgedRows aged_by_last(const AgedRowsOf& rows) {
  const std::uint64_t before = rows.tokens - 1;
  const std::uint64_t keys = kivi_packed_keys(rows.tokens), values = kivi_packed_values(rows.tokens);
  if (keys == kivi_packed_keys(before) && values == kivi_packed_values(before)) return {};
  Groups groups(rows.tokens);
  AgedRows out;
  for (const TokenPos position : rows.positions) {
    if (position.value >= kivi_packed_keys(before) && position.value < keys) {
      groups.add(position);
      ++out.keys16;
    }
    if (position.value < kivi_packed_values(before) || position.value >= values) continue;
    ++out.values16;
    ++out.packed_values;
  }
  out.packed_keys = groups.rows();
  return out;
}

LayerKeysValues CacheView::stored(std::uint32_t tokens, std::span<const float> k, std::span<const float> v) const {
  LayerKeysValues rows;
  rows.tokens = tokens;
  rows.k.resize(k.size() * size_of(type_.rows()));
  rows.v.resize(v.size() * size_of(type_.rows()));
  convert_from_float(type_.rows(), k, rows.k.data());
  convert_from_float(type_.rows(), v, rows.v.data());
  return rows;
}

void CacheView::start_layer(const TraceLayer& layer, DType type, const LayerKeysValues& keys_values,
                            std::uint32_t max_rows) {
  trace_type_ = type;
  std::vector<float> k(keys_values.k.size() / size_of(type)), v(keys_values.v.size() / size_of(type));
  convert_to_float(type, keys_values.k.data(), k);
  convert_to_float(type, keys_values.v.data(), v);
  pool_.parallel_for(std::size_t{keys_values.tokens} * layer.kv_heads, [&](std::size_t row) {
    round_trip_row(type_, std::span(k).subspan(row * layer.k_width, layer.k_width));
    round_trip_row(type_, std::span(v).subspan(row * layer.v_width, layer.v_width));
  });
  written_rows_ = stored(keys_values.tokens, k, v);
  written_.start_layer(layer, type_.rows(), written_rows_, max_rows);
  if (!type_.by_age()) return;
  age_layer(layer, k, v);
  aged_rows_ = stored(keys_values.tokens, k, v);
  aged_.start_layer(layer, type_.rows(), aged_rows_, max_rows);
}

std::optional<std::size_t> CacheView::first_unheld_value() const {
  const auto written = first_not_finite(type_.rows(), written_rows_.v);
  return written || !type_.by_age() ? written : first_not_finite(type_.rows(), aged_rows_.v);
}

// As if the last token had left the window. Of k whole groups alone: a rest is never met so.
void CacheView::age_layer(const TraceLayer& layer, std::span<float> k, std::span<float> v) {
  const std::size_t heads = layer.kv_heads, width = layer.k_width;
  const std::size_t tokens = k.size() / (heads * width);
  pool_.parallel_for(tokens * heads, [&](std::size_t row) {
    round_trip_aged_value(type_, v.subspan(row * layer.v_width, layer.v_width));
  });
  pool_.parallel_for(tokens / kKiviGroup * heads, [&](std::size_t task) {
    const std::size_t first = task / heads * kKiviGroup, head = task % heads;
    std::vector<float> group(kKiviGroup * width);
    for (std::size_t t = 0; t < kKiviGroup; ++t) {
      std::copy_n(k.begin() + static_cast<std::ptrdiff_t>(((first + t) * heads + head) * width), width,
                  group.begin() + static_cast<std::ptrdiff_t>(t * width));
    }
    round_trip_aged_keys(type_, group, width);
    for (std::size_t t = 0; t < kKiviGroup; ++t) {
      std::copy_n(group.begin() + static_cast<std::ptrdiff_t>(t * width), width,
                  k.begin() + static_cast<std::ptrdiff_t>(((first + t) * heads + head) * width));
    }
  });
}

void CacheView::compute(std::uint32_t first, std::uint32_t count, std::span<const std::byte> q) {
  std::vector<float> rows(q.size() / size_of(trace_type_));
  convert_to_float(trace_type_, q.data(), rows);
  q_.resize(rows.size() * size_of(type_.rows()));
  convert_from_float(type_.rows(), rows, q_.data());
  written_.compute(first, count, q_, {});
  if (type_.by_age()) aged_.compute(first, count, q_, {});
}

void CacheView::logits(std::uint32_t position, std::uint32_t query_head, std::span<const TokenPos> attended, bool aged,
                       std::span<float> logits) const {
  const std::uint64_t packed = aged && type_.by_age() ? kivi_packed_keys(position) : 0;
  const float* const written = written_.logits(position, query_head);
  const float* const quantised = packed > 0 ? aged_.logits(position, query_head) : written;
  for (std::size_t s = 0; s < attended.size(); ++s) {
    const std::uint32_t at = attended[s].value;
    logits[s] = at < packed ? quantised[at] : written[at];
  }
}

void CacheView::output(std::uint32_t position, std::uint32_t query_head, std::span<const TokenPos> attended, bool aged,
                       std::span<const float> weights, std::span<float> out) const {
  const std::uint64_t packed = aged && type_.by_age() ? kivi_packed_values(position) : 0;
  const RowsView written = written_.values_of(query_head);
  const RowsView quantised = packed > 0 ? aged_.values_of(query_head) : written;
  std::fill(out.begin(), out.end(), 0.0F);
  partial.resize(out.size());
  for (std::size_t s = 0; s < attended.size(); ++s) {
    const std::uint32_t at = attended[s].value;
    weighted_sum(weights.subspan(s, 1), (at < packed ? quantised : written).slice(at, 1), partial);
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += partial[c];
  }
}

void CacheViews::add(const PolicySpec& spec) {
  if (!spec.kv || !spec.kv->quantised() || of(spec) != nullptr) return;
  views_.push_back(std::make_unique<CacheView>(*spec.kv, pool_));
}

const CacheView* CacheViews::of(const PolicySpec& spec) const {
  const auto same = [&](const auto& view) { return spec.kv && view->type() == *spec.kv; };
  const auto found = std::ranges::find_if(views_, same);
  return found == views_.end() ? nullptr : found->get();
}

void CacheViews::start_layer(const TraceLayer& layer, DType type, const LayerKeysValues& keys_values,
                             std::uint32_t max_rows) {
  for (const auto& view : views_) view->start_layer(layer, type, keys_values, max_rows);
}

void CacheViews::compute(std::uint32_t first, std::uint32_t count, std::span<const std::byte> q) {
  for (const auto& view : views_) view->compute(first, count, q);
}

}  // namespace kvroof
