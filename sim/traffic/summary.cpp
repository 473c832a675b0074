#include "sim/traffic/summary.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/traffic/layer_residency.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// The step that would follow a prompt without decoded tokens: every kept row and the new one are read, as far as the
// layer's window shows them.
LayerCounts step_after_prompt(const Residency& r, std::uint32_t layer) {
  const LayerCounts& prompt = r.at(0, layer);
  const std::uint32_t rows = r.rows_of_token(layer);
  const bool own = prompt.written > 0;
  LayerCounts next;
  const u64 shown = r.within_window(layer, (own ? prompt.resident : prompt.allocated) + rows);
  next.attended = r.chooses(layer) ? r.chosen(shown) : shown;
  next.indexed = r.chooses(layer) ? shown / rows : 0;  // by one key for all heads
  next.attended_other = prompt.attended_other > 0 ? next.attended : 0;
  next.attended_aged = prompt.resident_aged;
  next.attended_aged.keys16 += rows;
  next.attended_aged.values16 += rows;
  next.scored = next.page_metadata = prompt.page_metadata;
  if (!own) return read_alone(next);
  next.written = rows;
  next.resident = prompt.resident;
  next.keyed_resident = prompt.keyed_resident;
  next.keyed_written = prompt.keyed_written > 0 ? rows : 0;
  next.resident_aged = prompt.resident_aged;
  return next;
}

// Rows that one layer must have room for: the largest number present at once after the prompt. Rows that were held and
// written do not tell: a head whose window is full takes a token in the place of another, one that holds less does not.
u64 peak_rows_of_layer(const Residency& r, std::uint32_t layer) {
  u64 peak = r.at(0, layer).resident;
  for (std::uint32_t step = 1; step <= r.steps; ++step) peak = std::max(peak, r.at(step, layer).allocated);
  return peak;
}

// Of rows with a key nobody counts how many are there at once. No window hides them.
u64 peak_keyed_of_layer(const Residency& r, std::uint32_t layer) {
  u64 present = r.at(0, layer).keyed_resident;
  u64 peak = present;
  for (std::uint32_t step = 1; step <= r.steps; ++step) {
    peak = std::max(peak, present + r.at(step, layer).keyed_written);
    present = r.at(step, layer).keyed_resident;
  }
  return peak;
}

AgedRows larger(AgedRows a, const AgedRows& b) {
  for_each_count_of([](u64& x, u64 y) { x = std::max(x, y); }, a, b);
  return a;
}

// Likewise where rows are kept by age: room for a full residual window and for what is quantised beside it.
AgedRows peak_aged_of_layer(const Residency& r, std::uint32_t layer) {
  if (r.at(0, layer).written == 0) return {};  // it reads what another layer holds
  AgedRows peak = r.at(0, layer).resident_aged;
  for (std::uint32_t step = 1; step <= r.steps; ++step) {
    peak = larger(larger(peak, r.at(step, layer).attended_aged), r.at(step, layer).resident_aged);
  }
  return peak;
}

u64 peak_of_layer(const Residency& r, std::uint32_t layer, std::uint64_t LayerCounts::* field) {
  u64 peak = 0;
  for (std::uint32_t step = 0; step <= r.steps; ++step) peak = std::max(peak, r.at(step, layer).*field);
  return peak;
}

void add_peaks(ResidencySummary& sum, const ResidencySummary& of, u64 times) {
  sum.peak_rows += times * of.peak_rows;
  sum.peak_keyed += times * of.peak_keyed;
  sum.peak_aged += times * of.peak_aged;
  sum.peak_paged_rows += times * of.peak_paged_rows;
  sum.peak_page_metadata += times * of.peak_page_metadata;
}

}  // namespace

AgedRows met_ages(u64 heads, u64 tokens, u64 read) {
  AgedRows met = heads * kivi_rows(tokens - 1, read - 1);
  met.keys16 += heads;
  met.values16 += heads;
  return met;
}

void set_full_ages(LayerCounts& c, u64 heads, u64 tokens, u64 held, u64 before) {
  c.resident_aged = heads * kivi_rows(tokens, held);
  if (before == 0) {
    const AgedRows once = kivi_rows(tokens, held);
    c.converted = heads * AgedRows{held - once.keys16, once.packed_values, once.packed_keys, once.packed_values};
    return;
  }
  c.attended_aged = met_ages(heads, tokens, held);
  const u64 keys = tokens % kKiviResidual == 0 ? std::min<u64>(kKiviResidual, held) : 0;
  const u64 values = held > kKiviResidual ? 1 : 0;
  c.converted = heads * AgedRows{keys, values, (keys + kKiviGroup - 1) / kKiviGroup * kKiviGroup, values};
}

LayerCounts added_to(const LayerCounts& before, LayerCounts all) {
  for_each_count([](std::uint64_t& x, std::uint64_t y) { x -= std::min(x, y); }, all, before);
  for (double PolicyFlops::* of : {&PolicyFlops::scoring, &PolicyFlops::noise, &PolicyFlops::selection}) {
    all.policy_flops.*of = std::max(0.0, all.policy_flops.*of - before.policy_flops.*of);
  }
  return all;
}

LayerCounts read_alone(const LayerCounts& counts) {
  LayerCounts read;
  read.attended = counts.attended;
  read.attended_other = counts.attended_other;
  read.attended_aged = counts.attended_aged;
  read.state_read = counts.state_read;
  read.scored = counts.scored;
  read.policy_flops = counts.policy_flops;
  return read;
}

ResidencySummary summarise(const Residency& r) {
  ResidencySummary sum;
  sum.prompt = r.prompt;
  sum.steps = r.steps;
  sum.layers = r.layers;
  sum.storage_heads = r.storage_heads;
  sum.state_bytes_per_row = r.state_bytes_per_row;
  sum.needs_probabilities = r.needs_probabilities;
  sum.observes_steps = r.observes_steps;
  sum.repeats = r.repeats;
  sum.decode_steps = std::max(r.steps, 1U);
  for (std::uint32_t step = 0; step <= r.steps; ++step) {
    LayerCounts& phase = step == 0 ? sum.prefill : sum.decode;
    for (std::uint32_t layer = 0; layer < r.layers; ++layer) phase += r.at(step, layer);
  }
  for (std::uint32_t layer = 0; layer < r.layers; ++layer) {
    if (r.steps == 0) sum.decode += step_after_prompt(r, layer);
    sum.peak_rows += peak_rows_of_layer(r, layer);
    sum.peak_keyed += peak_keyed_of_layer(r, layer);
    sum.peak_aged += peak_aged_of_layer(r, layer);
    sum.peak_paged_rows += peak_of_layer(r, layer, &LayerCounts::allocated_paged);
    sum.peak_page_metadata += peak_of_layer(r, layer, &LayerCounts::page_metadata);
    sum.layer_prompt_rows = std::max(sum.layer_prompt_rows, r.at(0, layer).written);
    const LayerCounts& prompt = r.at(0, layer);
    sum.evicts = sum.evicts || prompt.resident < r.within_window(layer, prompt.written);
  }
  return sum;
}

void SummarySum::add(const ResidencySummary& layers) {
  sum_.storage_heads = layers.storage_heads;
  sum_.state_bytes_per_row = layers.state_bytes_per_row;
  sum_.needs_probabilities = layers.needs_probabilities;
  sum_.observes_steps = layers.observes_steps;
  sum_.repeats = layers.repeats;
  sum_.evicts = sum_.evicts || layers.evicts;
  sum_.prefill += layers.prefill;
  sum_.layer_prompt_rows = std::max(sum_.layer_prompt_rows, layers.layer_prompt_rows);
  sequence_.decode += layers.decode;
  add_peaks(sequence_, layers, 1);
}

// A running batch, seen at any of its steps, has sequences in proportion to how long they run. One that decoded nothing
// is never in it, unless all are such: then the step that would follow each prompt stands for decoding.
void SummarySum::end_sequence(std::uint32_t prompt, std::uint32_t steps, std::uint32_t layers) {
  sum_.layers = layers;
  prompt_ += prompt;
  prompt_squares_ += static_cast<double>(prompt) * prompt;
  ++sequences_;
  const ResidencySummary sequence = std::exchange(sequence_, {});
  if (steps_ == 0 && steps > 0) {
    running_ = {};
    decode_steps_ = 0;
  }
  steps_ += steps;
  if (steps_ > 0 && steps == 0) return;
  const u64 weight = std::max(steps, 1U);
  running_.decode += sequence.decode;
  add_peaks(running_, sequence, weight);
  decode_steps_ += weight;
}

ResidencySummary SummarySum::mean() const {
  check(sequences_ > 0, "a summary needs at least one sequence");
  ResidencySummary mean = sum_;
  mean.prompt = static_cast<std::uint32_t>(nearest_mean(prompt_, sequences_));
  mean.steps = static_cast<std::uint32_t>(nearest_mean(steps_, sequences_));
  mean.prompt_squares = prompt_squares_ / static_cast<double>(sequences_);
  mean.decode_steps = decode_steps_;
  mean.prefill = nearest_mean(sum_.prefill, sequences_);
  mean.decode = running_.decode;
  // Rounded up, so that there is room for what is held.
  const auto mean_room = [this](u64 sum) { return (sum + decode_steps_ - 1) / decode_steps_; };
  mean.peak_rows = mean_room(running_.peak_rows);
  mean.peak_keyed = mean_room(running_.peak_keyed);
  mean.peak_aged = running_.peak_aged;
  for_each_count_of([&](u64& rows) { rows = mean_room(rows); }, mean.peak_aged);
  mean.peak_paged_rows = mean_room(running_.peak_paged_rows);
  mean.peak_page_metadata = mean_room(running_.peak_page_metadata);
  return mean;
}

Residency full_attention(u64 heads, std::uint32_t window, std::uint32_t chosen, std::uint32_t prompt,
                         std::uint32_t output) {
  const auto seen = [&](u64 tokens) { return window == 0 ? tokens : std::min<u64>(tokens, window); };
  Residency layer;
  layer.prompt = prompt;
  layer.steps = output;
  layer.layers = 1;
  layer.storage_heads = layer.kv_heads = static_cast<std::uint32_t>(heads);
  layer.layer_windows = {window};
  layer.index_tokens = chosen;
  layer.cells.resize(std::size_t{output} + 1);
  LayerCounts& first = layer.at(0, 0);
  const u64 shown = heads * prefill_rows_read(prompt, 1, window);
  first.attended = std::min(shown, heads * prefill_rows_read(prompt, 1, chosen));
  first.indexed = chosen > 0 ? shown : 0;
  first.written = heads * prompt;
  first.resident = first.allocated = heads * seen(prompt);
  set_full_ages(first, heads, prompt, seen(prompt), 0);
  first.allocated_paged = heads * in_pages(seen(prompt));
  for (std::uint32_t step = 1; step <= output; ++step) {
    LayerCounts& c = layer.at(step, 0);
    const u64 tokens = u64{prompt} + step;
    c.resident = c.allocated = heads * seen(tokens);
    c.attended = layer.chosen(c.resident);
    c.indexed = chosen > 0 ? c.resident : 0;
    c.allocated_paged = heads * in_pages(seen(tokens));
    c.written = heads;
    set_full_ages(c, heads, tokens, seen(tokens), seen(tokens - 1));
    if (c.attended < c.resident) c.attended_aged = met_ages(heads, tokens, chosen);
  }
  return layer;
}

// As layer `layer` of a shape has its part of a residency that was made as if it were one of most.
static ResidencySummary as_layer(const ModelShape& shape, std::uint32_t layer, ResidencySummary sum) {
  if (shape.is_other(layer)) {
    sum.prefill.attended_other = sum.prefill.attended;
    sum.decode.attended_other = sum.decode.attended;
  }
  if (shape.has_own_rows(layer)) return sum;
  sum.prefill = read_alone(sum.prefill);
  sum.decode = read_alone(sum.decode);
  sum.peak_rows = sum.peak_paged_rows = sum.peak_page_metadata = 0;
  sum.peak_aged = {};
  return sum;
}

ResidencySummary full_attention_summary(const ModelShape& shape, std::uint32_t prompt, std::uint32_t output) {
  struct Alike {
    std::uint32_t first = 0, layers = 0;
  };
  std::map<u64, Alike> kinds;
  std::uint32_t most_rows = shape.kv_heads;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto [kind, fresh] = kinds.try_emplace(shape.cache_kind(layer), Alike{layer, 0});
    ++kind->second.layers;
    most_rows = std::max(most_rows, shape.rows_of_token(layer));
  }
  SummarySum of_kinds;
  for (const auto& [kind, alike] : kinds) {
    const u64 heads = u64{shape.rows_of_token(alike.first)} * alike.layers;
    const std::uint32_t chosen = shape.compressed ? 0 : shape.index.tokens;
    const Residency layers = full_attention(heads, shape.window(alike.first), chosen, prompt, output);
    of_kinds.add(as_layer(shape, alike.first, summarise(layers)));
    if (const std::uint32_t rate = shape.compressed.rate(alike.first); rate > 0) {
      const std::uint32_t most = shape.compressed.chooses(alike.first) ? shape.index.tokens : 0;
      of_kinds.add(full_compressed_summary(heads, rate, most, prompt, output));
    }
  }
  of_kinds.end_sequence(prompt, output, shape.layers);
  ResidencySummary sum = of_kinds.mean();
  sum.storage_heads = shape.kv_heads;
  sum.layer_prompt_rows = u64{most_rows} * prompt;
  return sum;
}

ResidencySummary repetition_summary(const ModelShape& shape, std::uint32_t behind, std::uint32_t tokens) {
  constexpr std::uint32_t kAsking = 24;  // words of kvpress' KVzipPress in common tokenizers, and eight tokens shown
  const std::uint32_t passed = tokens + kAsking;
  ResidencySummary sum = full_attention_summary(shape, behind + passed, 0);
  sum.cached = behind;
  sum.cached_prefill = full_attention_summary(shape, behind, 0).prefill;
  const double scored = double{1} * passed * tokens + 0.5 * passed * (passed + 1.0);  // of a query head
  sum.prefill.policy_flops.scoring = 2.0 * shape.head_dim * shape.heads * shape.layers * scored;
  return sum;
}

// What all decode steps of one sequence move and do in the cache, as one call. The later queries of a step also meet
// the rows of those before them. Where an index chooses, each query reads rows of its own.
static StepTraffic traffic_of_all_steps(const ModelShape& shape, TrafficTypes types, const ResidencySummary& summary,
                                        StepTokens tokens) {
  const u64 passed = tokens.passed, more = passed - 1;
  StepWork work{0, 0, summary.storage_heads, summary.decode};
  LayerCounts& rows = work.rows;
  work.rows_read = rows.attended + more * rows.written;
  const u64 before = rows.attended;
  const u64 keyed = shape.compressed ? rows.keyed_written : rows.written;
  work.keys_read = rows.indexed > 0 ? rows.indexed + more * keyed : 0;
  rows.attended = passed * rows.attended + passed * more / 2 * rows.written;
  if (rows.indexed > 0) {
    work.rows_read = rows.attended;
    rows.indexed = passed * rows.indexed + passed * more / 2 * keyed;
  }
  if (rows.attended_other > 0) {
    const double growth = static_cast<double>(rows.attended) / static_cast<double>(before);
    rows.attended_other = scaled(rows.attended_other, growth);
  }
  if (rows.indexed > 0) {
    rows.attended_aged = passed * rows.attended_aged;
  } else if (rows.attended_aged != AgedRows{}) {
    rows.attended_aged.keys16 += more * rows.written;
    rows.attended_aged.values16 += more * rows.written;
  }
  rows.written *= passed;
  rows.keyed_written *= passed;
  rows.keyed_moved = scaled(rows.keyed_moved, tokens.kept);
  rows.moved = scaled(rows.moved, tokens.kept);
  rows.converted = scaled(rows.converted, tokens.kept);
  rows.policy_flops = static_cast<double>(passed) * rows.policy_flops;
  return step_traffic(shape, types, work);
}

// Bytes are divided and not rows, and once: a mean that is rounded to a row is off by up to half of one a sequence.
StepTraffic mean_decode_traffic(const ModelShape& shape, TrafficTypes types, const ResidencySummary& summary,
                                std::uint64_t batch, StepTokens tokens) {
  const double factor = static_cast<double>(batch) / static_cast<double>(summary.decode_steps);
  const StepTraffic all = traffic_of_all_steps(shape, types, summary, tokens);
  StepWork work{tokens.passed * batch, tokens.passed * batch, 0, {}};
  work.recurrent_reads = batch;
  work.recurrent_writes = tokens.passed * batch;  // any of the drafted tokens may be the last that stays
  StepTraffic mean = step_traffic(shape, types, work);
  for (const Cause cause : {Cause::kKvRead, Cause::kKvWrite, Cause::kCompaction, Cause::kScores}) {
    mean.bytes.add(cause, scaled(all.bytes[cause], factor));
  }
  mean.index_bytes = scaled(all.index_bytes, factor);
  mean.index_flops = Flops(factor * all.index_flops.value);
  mean.kv_read.scales = scaled(all.kv_read.scales, factor);
  mean.kv_read.residual = scaled(all.kv_read.residual, factor);
  // The parts make up the total: elements, of which there are most, take what rounding leaves.
  const u64 parts = mean.kv_read.scales + mean.kv_read.residual;
  mean.kv_read.elements = std::max(mean.bytes[Cause::kKvRead], parts) - parts;
  for (const KernelFamily family : {KernelFamily::kAttention, KernelFamily::kPolicy}) {
    mean.flops[static_cast<std::size_t>(family)] = Flops(factor * all[family].value);
  }
  return mean;
}

}  // namespace kvroof
