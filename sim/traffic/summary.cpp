#include "sim/traffic/summary.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// The step that would follow a prompt without decoded tokens: every kept row and the new one are read, as far as the
// layer's window shows them.
LayerCounts step_after_prompt(const Residency& r, std::uint32_t layer) {
  const LayerCounts& prompt = r.at(0, layer);
  LayerCounts next;
  next.attended = r.within_window(layer, prompt.resident + r.storage_heads);
  next.written = r.storage_heads;
  next.resident = prompt.resident;
  return next;
}

// Rows that one layer must have room for: the largest number present at once after the prompt.
u64 peak_rows_of_layer(const Residency& r, std::uint32_t layer) {
  u64 present = r.at(0, layer).resident;
  u64 peak = present;
  for (std::uint32_t step = 1; step <= r.steps; ++step) {
    peak = std::max(peak, r.within_window(layer, present + r.at(step, layer).written));
    present = r.at(step, layer).resident;
  }
  return peak;
}

u64 scaled(u64 value, double factor) { return static_cast<u64>(std::llround(static_cast<double>(value) * factor)); }

LayerCounts scaled(const LayerCounts& c, double factor) {
  LayerCounts s;
  s.attended = scaled(c.attended, factor);
  s.written = scaled(c.written, factor);
  s.moved = scaled(c.moved, factor);
  s.resident = scaled(c.resident, factor);
  s.allocated = scaled(c.allocated, factor);
  s.state_read = scaled(c.state_read, factor);
  s.state_written = scaled(c.state_written, factor);
  s.scored = scaled(c.scored, factor);
  s.policy_flops = factor * c.policy_flops;
  return s;
}

void add_sequence(ResidencySummary& sum, const Residency& r) {
  const auto layers = [&](std::uint32_t step) { return std::span<const LayerCounts>(&r.at(step, 0), r.layers); };
  sum.prefill = sum_counts(std::array{sum.prefill, sum_counts(layers(0))});
  for (std::uint32_t step = 1; step <= r.steps; ++step) {
    sum.decode = sum_counts(std::array{sum.decode, sum_counts(layers(step))});
  }
  if (r.steps == 0) {
    for (std::uint32_t layer = 0; layer < r.layers; ++layer) {
      sum.decode = sum_counts(std::array{sum.decode, step_after_prompt(r, layer)});
    }
  }
  for (std::uint32_t layer = 0; layer < r.layers; ++layer) {
    sum.peak_rows += peak_rows_of_layer(r, layer);
    sum.layer_prompt_rows = std::max(sum.layer_prompt_rows, r.at(0, layer).written);
    sum.evicts = sum.evicts || r.at(0, layer).resident < r.at(0, layer).written;
  }
}

}  // namespace

ResidencySummary summarise(std::span<const Residency> sequences) {
  check(!sequences.empty(), "a summary needs at least one sequence");
  const Residency& first = sequences.front();
  ResidencySummary sum;
  sum.layers = first.layers;
  sum.storage_heads = first.storage_heads;
  sum.state_bytes_per_row = first.state_bytes_per_row;
  sum.needs_probabilities = first.needs_probabilities;
  u64 prompt = 0;
  u64 decoded = 0;
  sum.decode_steps = 0;
  for (const Residency& r : sequences) {
    check(r.layers == first.layers && r.storage_heads == first.storage_heads,
          "sequences of a summary share their shape");
    add_sequence(sum, r);
    prompt += r.prompt;
    decoded += r.steps;
    sum.decode_steps += std::max(r.steps, 1U);
  }
  const double share = 1.0 / static_cast<double>(sequences.size());
  sum.prompt = static_cast<std::uint32_t>(scaled(prompt, share));
  sum.steps = static_cast<std::uint32_t>(scaled(decoded, share));
  sum.prefill = scaled(sum.prefill, share);
  sum.peak_rows = scaled(sum.peak_rows, share);
  return sum;
}

ResidencySummary summarise(const Residency& residency) { return summarise(std::span(&residency, 1)); }

ResidencySummary full_attention_summary(const ModelShape& shape, std::uint32_t prompt, std::uint32_t output) {
  Residency layer;
  layer.prompt = prompt;
  layer.steps = output;
  layer.layers = 1;
  layer.storage_heads = layer.kv_heads = shape.kv_heads;
  ResidencySummary sum;
  sum.decode_steps = 0;
  for (std::uint32_t l = 0; l < shape.layers; ++l) {
    const u64 window = shape.window(l);
    const auto seen = [&](u64 tokens) { return window == 0 ? tokens : std::min(tokens, window); };
    layer.layer_windows = {shape.window(l)};
    layer.cells.assign(std::size_t{output} + 1, {});
    LayerCounts& first = layer.at(0, 0);
    first.attended = shape.kv_heads * prefill_rows_read(prompt, 1, shape.window(l));
    first.written = u64{shape.kv_heads} * prompt;
    first.resident = first.allocated = shape.kv_heads * seen(prompt);
    for (std::uint32_t step = 1; step <= output; ++step) {
      LayerCounts& c = layer.at(step, 0);
      c.attended = c.resident = c.allocated = shape.kv_heads * seen(u64{prompt} + step);
      c.written = shape.kv_heads;
    }
    add_sequence(sum, layer);
  }
  sum.prompt = prompt;
  sum.steps = output;
  sum.layers = shape.layers;
  sum.storage_heads = shape.kv_heads;
  sum.decode_steps = std::max(output, 1U);
  sum.evicts = false;
  return sum;
}

StepTraffic mean_decode_traffic(const ModelShape& shape, TrafficTypes types, const ResidencySummary& summary,
                                std::uint64_t batch) {
  const double factor = static_cast<double>(batch) / static_cast<double>(summary.decode_steps);
  return step_traffic(shape, types, {batch, batch, summary.storage_heads, scaled(summary.decode, factor)});
}

}  // namespace kvroof
