// Residency on another model's shape and other lengths; docs/method.md, "Projection", has the formulas.
#include <algorithm>
#include <cmath>

#include "sim/traffic/layer_residency.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

u64 rounded(double x) { return static_cast<u64>(std::llround(std::max(x, 0.0))); }

// Tokens that a head of a layer can hold, and that a query can see, of `tokens`.
u64 seen(u64 tokens, std::uint32_t window) { return window == 0 ? tokens : std::min<u64>(tokens, window); }

double causal_rows(std::uint32_t n, std::uint32_t window) {
  return static_cast<double>(prefill_rows_read(n, 1, window));
}

// From what the target's counts come.
struct Target {
  std::uint32_t prompt = 0, output = 0;
  double heads = 1;    // storage heads, target / recorded
  double prompts = 1;  // prompt tokens, target / recorded
  double causal = 1;   // rows attended by a causal prompt, target / recorded
  std::uint32_t window = 0, recorded_window = 0;  // of the layer
  std::uint32_t storage_heads = 1, recorded_heads = 1;
  double width = 1;  // of a row of k, target / recorded
  const Room& room;
  const Room& reads;

  // Those since the last eviction are as many whatever the budget is.
  [[nodiscard]] u64 room_at(std::uint32_t step) const {
    return seen(room.target(prompt, step, window) + room.since_eviction(step), window);
  }
  [[nodiscard]] u64 recorded_room_at(std::uint32_t recorded_prompt, std::uint32_t step) const {
    return seen(room.recorded(recorded_prompt, step, recorded_window) + room.since_eviction(step), recorded_window);
  }
  // Rows that a policy which selects reads in a step of the target, over those in a step of the recording.
  [[nodiscard]] double read_growth(std::uint32_t recorded_prompt, std::uint32_t recorded, std::uint32_t step) const {
    return heads * static_cast<double>(seen(reads.target(prompt, step, window), window)) /
           static_cast<double>(seen(reads.recorded(recorded_prompt, recorded, recorded_window), recorded_window));
  }
};

// Rows resident in one layer of the recording, as a share of what its heads have room for.
class Occupancy {
 public:
  Occupancy(const Residency& r, std::uint32_t layer) : r_(r), layer_(layer) {}

  // Rows resident after step `step` of the target.
  [[nodiscard]] double rows(std::uint32_t step, const Target& to) const {
    const double recorded = to.output > 0 ? static_cast<double>(step) / to.output * r_.steps : 0;
    const auto s = static_cast<std::uint32_t>(std::clamp<long long>(std::llround(recorded), 0, r_.steps));
    const double most = static_cast<double>(to.storage_heads * seen(u64{to.prompt} + step, to.window));
    return std::min(most, static_cast<double>(r_.at(s, layer_).resident) * to.heads * growth(s, step, to));
  }
  // Room for a head after a step of the target, over that after a step of the recording.
  [[nodiscard]] double growth(std::uint32_t recorded, std::uint32_t step, const Target& to) const {
    return static_cast<double>(to.room_at(step)) / static_cast<double>(to.recorded_room_at(r_.prompt, recorded));
  }

 private:
  const Residency& r_;
  std::uint32_t layer_;
};

// Rows of whole pages, where `heads` heads hold alike.
u64 paged_evenly(u64 rows, u64 heads) { return heads * in_pages((rows + heads - 1) / heads); }

// Rows of whole pages of a layer that has `allocated` rows: what heads that do not hold alike take beside these in the
// recording they take here, each.
u64 paged(const LayerCounts& recorded, u64 allocated, const Target& to) {
  const double beside = static_cast<double>(recorded.allocated_paged) -
                        static_cast<double>(paged_evenly(recorded.allocated, to.recorded_heads));
  const auto evenly = static_cast<double>(paged_evenly(allocated, to.storage_heads));
  return std::max(allocated, rounded(evenly + beside * to.heads));
}

LayerCounts prompt_counts(const LayerCounts& c, const Occupancy& occupancy, const Target& to) {
  LayerCounts t;
  const double held = to.heads * occupancy.growth(0, 0, to);
  const double attended = to.heads * to.causal;
  t.attended = rounded(static_cast<double>(c.attended) * attended);
  t.written = rounded(static_cast<double>(c.written) * to.heads * to.prompts);
  t.resident = rounded(occupancy.rows(0, to));
  // Where all of the prompt fits nothing is moved.
  t.moved = to.room_at(0) < to.prompt ? rounded(static_cast<double>(c.moved) * held) : 0;
  t.allocated = std::min(t.written, rounded(static_cast<double>(c.allocated) * held));
  t.allocated_paged = paged(c, t.allocated, to);
  t.state_read = rounded(static_cast<double>(c.state_read) * attended);
  t.state_written = rounded(static_cast<double>(c.state_written) * attended);
  t.scored = rounded(static_cast<double>(c.scored) * to.heads * to.prompts * to.width);
  t.page_metadata = rounded(static_cast<double>(c.page_metadata) * held * to.width);
  t.policy_flops = attended * c.policy_flops;
  return t;
}

u64 within(u64 rows, std::uint32_t heads, std::uint32_t window) {
  return window == 0 ? rows : std::min(rows, u64{heads} * window);
}

// A decode step that starts with `before` rows in the target, like step `c`, which started with `recorded` rows.
// `read_growth`: of the rows attended where a policy reads pages, so many whatever it holds; 0: a share.
LayerCounts decode_counts(const LayerCounts& c, u64 recorded, double before, double after, double read_growth,
                          const Target& to) {
  LayerCounts t;
  t.written = rounded(static_cast<double>(c.written) * to.heads);
  // Masked simulations attend to fewer rows than are present; the share stays. Under a window a new row takes the place
  // of the oldest.
  const u64 present = within(recorded + c.written, to.recorded_heads, to.recorded_window);
  const double share = present > 0 ? static_cast<double>(c.attended) / static_cast<double>(present) : 1;
  t.allocated = within(rounded(before) + t.written, to.storage_heads, to.window);
  t.allocated_paged = paged(c, t.allocated, to);
  t.attended = rounded(share * std::min(before + static_cast<double>(t.written), static_cast<double>(t.allocated)));
  if (read_growth > 0 && c.page_metadata > 0) {
    t.attended = std::min(t.allocated, rounded(static_cast<double>(c.attended) * read_growth));
  }
  t.resident = rounded(after);
  const double attended = c.attended > 0 ? static_cast<double>(t.attended) / static_cast<double>(c.attended) : 1;
  t.state_read = rounded(static_cast<double>(c.state_read) * attended);
  t.state_written = rounded(static_cast<double>(c.state_written) * attended);
  // Bounds of pages are read for all rows that are there.
  const double there = present > 0 ? static_cast<double>(t.allocated) / static_cast<double>(present) : 1;
  t.scored = rounded(static_cast<double>(c.scored) * (c.page_metadata > 0 ? there : attended) * to.width);
  t.page_metadata = rounded(static_cast<double>(c.page_metadata) * there * to.width);
  t.policy_flops = (c.page_metadata > 0 ? there * to.width : attended) * c.policy_flops;
  return t;
}

// Rows moved in decode step `step` of the target. A policy that moves rows in most steps moves a share of what it holds
// in each; one that compacts now and then moves a constant number a decoded token, so its total follows the steps.
class MovedRows {
 public:
  MovedRows(const Residency& r, std::uint32_t layer) : r_(r), layer_(layer) {
    std::uint32_t moving = 0;
    for (std::uint32_t s = 1; s <= r.steps; ++s) moving += r.at(s, layer).moved > 0 ? 1U : 0U;
    every_step_ = 2 * moving > r.steps;
  }

  [[nodiscard]] u64 at(std::uint32_t step, const Occupancy& occupancy, const Target& to) const {
    const std::uint32_t s = recorded_step(step, to.output);
    if (every_step_) {
      return rounded(static_cast<double>(r_.at(s, layer_).moved) * to.heads * occupancy.growth(s, step, to));
    }
    double moved = 0;
    const std::uint32_t before = step == 1 ? 0 : recorded_step(step - 1, to.output);
    for (std::uint32_t i = before + 1; i <= s; ++i) moved += static_cast<double>(r_.at(i, layer_).moved);
    return rounded(moved * to.heads * to.output / r_.steps);
  }

  // The recorded decode step at the same relative time.
  [[nodiscard]] std::uint32_t recorded_step(std::uint32_t step, std::uint32_t steps) const {
    const double relative = static_cast<double>(step) / steps * r_.steps;
    return static_cast<std::uint32_t>(std::clamp<long long>(std::llround(relative), 1, r_.steps));
  }

 private:
  const Residency& r_;
  std::uint32_t layer_;
  bool every_step_ = false;
};

// Rows by age (KvType::by_age) of `heads` heads that hold `rows` of `tokens` tokens.
struct Held {
  u64 rows = 0, tokens = 0, heads = 1;
  u64 fresh = 0;  // tokens beside these that a query brings along
  [[nodiscard]] double key_window() const {
    return static_cast<double>(heads * (tokens - kivi_packed_keys(tokens) + fresh));
  }
  [[nodiscard]] double value_window() const {
    return static_cast<double>(heads * (tokens - kivi_packed_values(tokens) + fresh));
  }
};

double share_of(u64 part, double whole) { return whole > 0 ? static_cast<double>(part) / whole : 1; }

u64 whole_groups(double rows) { return rounded(std::ceil(rows / kKiviGroup - 1e-9)) * kKiviGroup; }

// The window holds the same share of its tokens as the recorded one, and a quantised row of k as many holes beside it.
AgedRows aged_like(const AgedRows& aged, const Held& recorded, const Held& to) {
  AgedRows out;
  out.keys16 = std::min(to.rows, rounded(share_of(aged.keys16, recorded.key_window()) * to.key_window()));
  out.values16 = std::min(to.rows, rounded(share_of(aged.values16, recorded.value_window()) * to.value_window()));
  out.packed_values = to.rows - out.values16;
  const auto quantised = static_cast<double>(recorded.rows - std::min(recorded.rows, aged.keys16));
  const double holes = std::max(1.0, share_of(aged.packed_keys, quantised));
  out.packed_keys = whole_groups(holes * static_cast<double>(to.rows - out.keys16));
  return out;
}

// Counts of a step after which `tokens` are cached, from those of a recorded step after which `recorded` were.
void project_ages(LayerCounts& t, const LayerCounts& c, Held recorded, Held to, bool prompt) {
  if (c.resident_aged == AgedRows{}) return;  // not counted
  recorded.rows = c.resident;
  to.rows = t.resident;
  const AgedRows held = t.resident_aged = aged_like(c.resident_aged, recorded, to);
  if (prompt) {
    const u64 copies = t.moved > 0 ? 2 : 0;
    t.converted = {to.rows - held.keys16 + copies * held.keys16, held.packed_values + copies * held.values16,
                   held.packed_keys, held.packed_values};
    return;
  }
  const bool leaves = to.tokens % kKiviResidual == 0;
  const AgedRows before = aged_like(c.attended_aged, {c.attended, recorded.tokens - 1, recorded.heads, 1},
                                    {t.attended, to.tokens - 1, to.heads, 1});
  t.attended_aged = before;
  const u64 keys = leaves ? before.keys16 : 0;
  const u64 values = held.packed_values > 0 ? std::min(to.heads, before.values16) : 0;
  t.converted = {keys, values, whole_groups(static_cast<double>(keys)), values};
}

bool keeps_query_heads(const Residency& from, const ModelShape& shape) { return from.storage_heads != shape.kv_heads; }

// Rows of a token in a layer of the projection.
std::uint32_t layer_rows(const Residency& from, const ModelShape& from_shape, const ModelShape& to,
                         std::uint32_t layer) {
  const bool query_heads = keeps_query_heads(from, from_shape);
  if (!to.is_other(layer)) return query_heads ? to.heads : to.kv_heads;
  return to.rows_of_token(layer) * (query_heads ? to.other.heads / to.other.kv_heads : 1);
}

// Everything but the cells of a projection on `layers` layers.
Residency without_cells(const Residency& from, const ModelShape& from_shape, const ModelShape& to,
                        ProjectedLengths lengths, std::uint32_t layers) {
  if (lengths.output > 0 && from.steps == 0) {
    throw usage_error("the trace has no decoded tokens to project; record a run of two new tokens or more");
  }
  if (to.compressed && keeps_query_heads(from, from_shape)) {
    throw usage_error(fmt::format("{} keeps rows for each query head, and in {} one row that stands for several tokens "
                                  "serves all heads", from.policy, to.name));
  }
  check(from.layers > 0 && from.prompt > 0 && from.storage_heads > 0, "a residency has cells");
  Residency out;
  out.policy = from.policy;
  out.sequence = from.sequence;
  out.state_bytes_per_row = from.state_bytes_per_row;
  out.needs_probabilities = from.needs_probabilities;
  out.observes_steps = from.observes_steps;
  out.repeats = from.repeats;
  out.index_tokens = to.index.tokens;
  out.prompt = lengths.prompt;
  out.steps = lengths.output;
  out.layers = layers;
  out.storage_heads = keeps_query_heads(from, from_shape) ? to.heads : to.kv_heads;
  out.kv_heads = to.kv_heads;
  out.cells.resize((std::size_t{lengths.output} + 1) * layers);
  return out;
}

// Where an index chooses what queries read: `shown` rows of `heads` heads compete, by one key for all of them, and at
// most `most` are read.
void choose(LayerCounts& c, u64 shown, u64 most, u64 heads) {
  c.indexed = shown / heads;
  c.attended = std::min(c.attended, most);
}

// What the layers of a projection share.
struct Growth {
  double width;  // of a row of k, target / recorded
  const Room& room;
  const Room& reads;
};

// Fills layer `cell` of a projection from layer `source` of a recording.
void fill_layer(const Residency& from, std::uint32_t source, const Growth& growth, Residency& out, std::uint32_t cell) {
  const std::uint32_t window = out.layer_windows.empty() ? 0 : out.layer_windows[cell];
  const std::uint32_t heads = out.rows_of_token(cell);
  const std::uint32_t recorded_window = from.layer_windows.empty() ? 0 : from.layer_windows[source];
  const Target to{out.prompt,
                  out.steps,
                  static_cast<double>(heads) / from.storage_heads,
                  static_cast<double>(out.prompt) / from.prompt,
                  causal_rows(out.prompt, window) / causal_rows(from.prompt, recorded_window),
                  window,
                  recorded_window,
                  heads,
                  from.storage_heads,
                  growth.width,
                  growth.room,
                  growth.reads};
  const Occupancy occupancy(from, source);
  const MovedRows moved(from, source);
  out.at(0, cell) = prompt_counts(from.at(0, source), occupancy, to);
  const auto recorded_at = [&](std::uint32_t s) { return Held{0, u64{from.prompt} + s, from.storage_heads}; };
  const auto held_at = [&](std::uint32_t s) { return Held{0, u64{out.prompt} + s, heads}; };
  project_ages(out.at(0, cell), from.at(0, source), recorded_at(0), held_at(0), true);
  const auto prompt_rows = [&](std::uint32_t seen) { return u64{heads} * prefill_rows_read(out.prompt, 1, seen); };
  if (out.index_tokens > 0) choose(out.at(0, cell), prompt_rows(window), prompt_rows(out.index_tokens), heads);
  for (std::uint32_t step = 1; step <= out.steps; ++step) {
    const std::uint32_t s = moved.recorded_step(step, out.steps);
    LayerCounts& c = out.at(step, cell);
    const double read_growth = growth.reads ? to.read_growth(from.prompt, s, step) : 0;
    c = decode_counts(from.at(s, source), from.at(s - 1, source).resident, occupancy.rows(step - 1, to),
                      occupancy.rows(step, to), read_growth, to);
    if (out.index_tokens > 0) choose(c, c.allocated, u64{heads} * out.index_tokens, heads);
    c.moved = moved.at(step, occupancy, to);
    project_ages(c, from.at(s, source), recorded_at(s), held_at(step), false);
  }
}

// What of the counts of a layer there is where it is not like most.
void as_layer(const ModelShape& to, std::uint32_t layer, Residency& out, std::uint32_t cell) {
  for (std::uint32_t step = 0; step <= out.steps; ++step) {
    LayerCounts& c = out.at(step, cell);
    if (to.is_other(layer)) c.attended_other = c.attended;
    if (to.has_own_rows(layer)) continue;
    const u64 there = c.resident;
    c = read_alone(c);
    if (step == 0) c.allocated = there;  // for the step that follows a prompt
  }
}

double width_growth(const ModelShape& from, const ModelShape& to) {
  return from.head_dim > 0 ? static_cast<double>(to.head_dim) / from.head_dim : 1;
}

// Without compressed rows: the layer, or the window beside them.
Residency project_one(const Residency& residency, const ModelShape& from, const ModelShape& to,
                      ProjectedLengths lengths, const Room& room, std::uint32_t layer, const Room& reads) {
  Residency out = without_cells(residency, from, to, lengths, 1);
  out.layer_windows = {to.window(layer)};
  out.layer_rows = {layer_rows(residency, from, to, layer)};
  fill_layer(residency, source_layer(layer, to, residency), {width_growth(from, to), room, reads}, out, 0);
  as_layer(to, layer, out, 0);
  return out;
}

// Compressed rows are the tokens of a layer without a window. A prompt that is too short for one is taken to have one.
Residency project_rows(const Residency& residency, const ModelShape& from, const ModelShape& to,
                       ProjectedLengths lengths, const Room& room, std::uint32_t layer, const Room& reads) {
  ModelShape alone = to;
  alone.layer_windows.clear();
  alone.index = {};
  const std::uint32_t rate = to.compressed.rate(layer);
  const std::uint32_t prompt = std::max(lengths.prompt / rate, 1U);
  const auto all = static_cast<std::uint32_t>((std::uint64_t{lengths.prompt} + lengths.output) / rate);
  const std::uint32_t steps = lengths.output > 0 ? std::max(all, prompt + 1) - prompt : 0;
  return project_one(residency, from, alone, {prompt, steps}, room, layer, reads);
}

}  // namespace

// The middle of a layer, as a share of the depth, falls into this layer of the recording. Layers that the policy leaves
// alone are the first ones of every model, and the depth is that of the others.
std::uint32_t source_layer(std::uint32_t layer, const ModelShape& to, const Residency& from) {
  const std::uint32_t dense = from.dense_layers;
  if (layer < dense) return std::min(layer, from.layers - 1);
  if (from.layers <= dense) {
    throw usage_error(fmt::format("{} reads everything in the first {} layers and the recording has {}: dense=0, or a "
                                  "recording of more layers, says what the others read",
                                  from.policy, dense, from.layers));
  }
  return dense + static_cast<std::uint32_t>((u64{2} * (layer - dense) + 1) * (from.layers - dense) /
                                            (u64{2} * (to.layers - dense)));
}

Residency project_layer(const Residency& residency, const ModelShape& from, const ModelShape& to,
                        ProjectedLengths lengths, const Room& room, std::uint32_t layer, const Room& reads) {
  if (!to.compressed) return project_one(residency, from, to, lengths, room, layer, reads);
  Residency out = without_cells(residency, from, to, lengths, 1);
  out.index_tokens = 0;
  out.cells = full_attention(out.storage_heads, to.window(layer), 0, lengths.prompt, lengths.output).cells;
  out.layer_windows = {to.window(layer)};
  if (to.compressed.rate(layer) == 0) return out;
  return beside_window(out, project_rows(residency, from, to, lengths, room, layer, reads), to.compressed.rate(layer),
                       to.compressed.chooses(layer) ? to.index.tokens : 0);
}

Residency project(const Residency& residency, const ModelShape& from, const ModelShape& to, ProjectedLengths lengths,
                  const Room& room, const Room& reads) {
  check(!to.compressed, "layers with compressed rows are projected one by one");
  Residency out = without_cells(residency, from, to, lengths, to.layers);
  out.layer_windows = to.layer_windows;
  for (std::uint32_t layer = 0; layer < to.layers && !to.other.layers.empty(); ++layer) {
    out.layer_rows.push_back(layer_rows(residency, from, to, layer));
  }
  for (std::uint32_t layer = 0; layer < to.layers; ++layer) {
    fill_layer(residency, source_layer(layer, to, residency), {width_growth(from, to), room, reads}, out, layer);
    as_layer(to, layer, out, layer);
  }
  return out;
}

}  // namespace kvroof
