#include "sim/replay/empty_residency.hpp"

namespace kvroof {

Residency empty_residency(const PolicySpec& spec, const PolicyTraits& traits, const TraceManifest& trace,
                          const TraceSequence& sequence) {
  const TraceLayer& shape = trace.layers.front();
  const bool by_query_head = traits.unit == StorageUnit::kQueryHead;
  const std::uint32_t group = by_query_head ? 1 : shape.query_heads / shape.kv_heads;
  Residency head;
  head.policy = spec.text();
  head.sequence = sequence.id;
  head.prompt = sequence.prompt;
  head.steps = sequence.tokens - sequence.prompt;
  head.layers = static_cast<std::uint32_t>(trace.layers.size());
  head.storage_heads = by_query_head ? shape.query_heads : shape.kv_heads;
  head.kv_heads = shape.kv_heads;
  for (const TraceLayer& layer : trace.layers) head.layer_windows.push_back(layer.window);
  head.dense_layers = traits.dense_layers;
  head.state_bytes_per_row = traits.state_bytes + group * traits.query_head_state;
  head.needs_probabilities = traits.rows == RowNeed::kAll && !traits.bound;
  head.repeats = traits.repeats;
  head.observes_steps = traits.rows != RowNeed::kNone && !traits.bound && traits.schedule == Schedule::kEveryStep;
  return head;
}

}  // namespace kvroof
