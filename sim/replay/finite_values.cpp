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

void require_finite_values(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                           const TraceLayer& shape, const LayerKeysValues& values) {
  const auto at = first_not_finite(trace.manifest().kv_type, values.v);
  if (!at) return;
  const std::size_t row = *at / shape.v_width, head = row % shape.kv_heads;
  const std::uint32_t heads = trace.manifest().layers[layer.value].kv_heads;
  throw Error(fmt::format("{}: v holds NaN or infinity (sequence {}, layer {}, KV head {}, token {}), so nothing can "
                          "be said of outputs",
                          trace.path().string(), sequence.id, layer.value + head / heads, head % heads,
                          row / shape.kv_heads))
      .note("`kvroof replay --quality recall` and analyses of attention alone do without v");
}

}  // namespace kvroof
