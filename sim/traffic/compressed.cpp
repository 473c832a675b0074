// Layers with compressed rows: the window beside them is one cache, and the rows are another, whose tokens come once in
// so many tokens of the text.
#include <algorithm>
#include <cmath>

#include "sim/traffic/layer_residency.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Σ ⌊i / rate⌋ for i up to n: each number rate times, and the last one for what is left.
u64 whole_rows(u64 n, u64 rate) {
  const u64 m = n / rate;
  return m == 0 ? 0 : rate * (m * (m - 1) / 2) + m * (n - rate * m + 1);
}

void set_keyed(LayerCounts& c) {
  c.keyed_written = c.written;
  c.keyed_moved = c.moved;
  c.keyed_resident = c.resident;
}

// Of a step in which no row comes: what is there is read, and nothing is written or moved.
LayerCounts between_rows(LayerCounts c, u64 resident) {
  c.written = c.moved = 0;
  c.resident = c.allocated = resident;
  c.attended = std::min(c.attended, resident);
  c.converted = {};
  return c;
}

// Of heads that hold all of so many rows, `before` of them one token earlier; `read`: of each head.
void set_row_ages(LayerCounts& c, u64 heads, u64 rows, u64 before, u64 read, bool prompt) {
  if (rows == 0) return;
  if (prompt) return set_full_ages(c, heads, rows, rows, 0);
  c.resident_aged = c.attended_aged = heads * kivi_rows(rows, rows);
  if (rows > before && before > 0) set_full_ages(c, heads, rows, rows, before);
  if (read < rows) c.attended_aged = met_ages(heads, rows, read);
}

// A prompt's tokens, not its rows, are the queries.
void take_queries(LayerCounts& c, const Residency& rows, u64 tokens, std::uint32_t rate) {
  const double met = static_cast<double>(compressed_rows_seen(tokens, rate));
  const double growth = met / static_cast<double>(prefill_rows_read(rows.prompt, 1));
  c.policy_flops = growth * c.policy_flops;
  const auto grow = [growth](u64& count) {
    count = static_cast<u64>(std::llround(growth * static_cast<double>(count)));
  };
  grow(c.attended);
  grow(c.state_read);
  grow(c.state_written);
}

// All queries of a step meet `met` keys, one for all heads, and read no more than `most` rows of each head.
void choose_rows(LayerCounts& c, u64 met, u64 most, u64 heads) {
  c.indexed = met;
  c.attended = std::min(c.attended, heads * most);
  set_keyed(c);
}

}  // namespace

u64 compressed_rows_seen(u64 tokens, std::uint32_t rate, std::uint32_t most) {
  const u64 hidden_from = u64{most} * rate;
  const u64 hidden = most == 0 || tokens <= hidden_from ? 0 : whole_rows(tokens - hidden_from, rate);
  return whole_rows(tokens, rate) - hidden;
}

ResidencySummary full_compressed_summary(u64 heads, std::uint32_t rate, std::uint32_t chosen, std::uint32_t prompt,
                                         std::uint32_t output) {
  Residency layer;
  layer.prompt = prompt;
  layer.steps = std::max(output, 1U);  // without decoded tokens the step that would follow the prompt
  layer.layers = 1;
  layer.storage_heads = layer.kv_heads = static_cast<std::uint32_t>(heads);
  layer.index_tokens = chosen;
  layer.cells.resize(std::size_t{layer.steps} + 1);
  for (std::uint32_t step = 0; step <= layer.steps; ++step) {
    LayerCounts& c = layer.at(step, 0);
    const u64 tokens = u64{prompt} + step, rows = tokens / rate;
    c.resident = c.allocated = heads * rows;
    c.allocated_paged = heads * in_pages(rows);
    c.written = step == 0 ? c.resident : c.resident - layer.at(step - 1, 0).resident;
    c.attended = step == 0 ? heads * compressed_rows_seen(prompt, rate, chosen) : layer.chosen(c.resident);
    set_row_ages(c, heads, rows, (tokens - 1) / rate, layer.chosen(c.resident) / heads, step == 0);
    if (chosen == 0) continue;
    c.indexed = step == 0 ? heads * compressed_rows_seen(prompt, rate) : c.resident;
    set_keyed(c);
  }
  ResidencySummary sum = summarise(layer);
  if (output > 0) return sum;
  const LayerCounts& after = layer.at(0, 0);
  sum.peak_rows = after.resident;
  sum.peak_paged_rows = after.allocated_paged;
  sum.peak_keyed = after.keyed_resident;
  return sum;
}

Residency beside_window(const Residency& window, const Residency& rows, std::uint32_t rate, std::uint32_t chosen) {
  const u64 heads = rows.storage_heads;
  Residency both = window;
  both.layers = 2;
  both.layer_windows = {window.layer_windows.front(), 0};
  both.layer_rows = {rows.storage_heads, rows.storage_heads};
  both.index_tokens = chosen;
  both.cells.assign(2 * window.cells.size(), {});
  for (std::uint32_t step = 0; step <= window.steps; ++step) both.at(step, 0) = window.at(step, 0);
  LayerCounts& prompt = both.at(0, 1) = rows.at(0, 0);
  take_queries(prompt, rows, window.prompt, rate);
  if (chosen > 0) {
    choose_rows(prompt, compressed_rows_seen(window.prompt, rate), compressed_rows_seen(window.prompt, rate, chosen),
                heads);
  }
  std::uint32_t last = 0;  // step of `rows` in which the last row came
  for (std::uint32_t step = 1; step <= window.steps; ++step) {
    const u64 there = std::max<u64>((u64{window.prompt} + step) / rate, rows.prompt) - rows.prompt;
    const auto now = static_cast<std::uint32_t>(std::min<u64>(there, rows.steps));
    LayerCounts& c = both.at(step, 1);
    c = now > last ? rows.at(now, 0) : between_rows(rows.at(std::max(now, 1U), 0), rows.at(now, 0).resident);
    if (chosen > 0) choose_rows(c, c.allocated / heads, chosen, heads);
    last = now;
  }
  return both;
}

}  // namespace kvroof
