#include "sim/replay/finite_values.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/policy/policy.hpp"
#include "traces/finite_elements.hpp"

namespace kvroof {

bool reads_values(std::span<const PolicySpec> points, const MeasureOptions& measure) {
  if (measure.recall && measure.output_error) return true;
  return std::ranges::any_of(points, [](const PolicySpec& spec) {
    const PolicyTraits traits = policy_info(spec.name).traits(spec);
    return traits.tensors.values || traits.merges;
  });
}

namespace {

// What says where element `at` of rows of so many elements lies.
std::string place_of(const TraceReader& trace, const TraceSequence& sequence, LayerId layer, const TraceLayer& shape,
                     std::size_t at, std::size_t width) {
  const std::size_t row = at / width, head = row % shape.kv_heads;
  const std::uint32_t heads = trace.manifest().layers[layer.value].kv_heads;
  return fmt::format("(sequence {}, layer {}, KV head {}, token {})", sequence.id, layer.value + head / heads,
                     head % heads, row / shape.kv_heads);
}

}  // namespace

void require_finite_keys(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                         const TraceLayer& shape, const LayerKeysValues& values) {
  const auto at = first_not_finite(trace.manifest().kv_type, values.k);
  if (!at) return;
  throw Error(fmt::format("{}: k holds NaN or infinity {}, so nothing can be said of attention", trace.path().string(),
                          place_of(trace, sequence, layer, shape, *at, shape.k_width)));
}

void require_finite_values(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                           const TraceLayer& shape, const LayerKeysValues& values) {
  const auto at = first_not_finite(trace.manifest().kv_type, values.v);
  if (!at) return;
  throw Error(fmt::format("{}: v holds NaN or infinity {}, so nothing can be said of outputs", trace.path().string(),
                          place_of(trace, sequence, layer, shape, *at, shape.v_width)))
      .note("`kvroof replay --quality recall` and analyses of attention alone do without v");
}

}  // namespace kvroof
