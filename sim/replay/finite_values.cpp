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

constexpr int kLargestExponent = 100;

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
  const DType type = trace.manifest().kv_type;
  const auto at = first_beyond(type, values.v, kLargestExponent);
  if (!at) return;
  const bool finite = !first_not_finite(type, std::span(values.v).subspan(*at * size_of(type), size_of(type)));
  throw Error(fmt::format("{}: v holds {} {}, so nothing can be said of outputs", trace.path().string(),
                          finite ? "an element beyond ±2^100, of which a sum may overflow" : "NaN or infinity",
                          place_of(trace, sequence, layer, shape, *at, shape.v_width)))
      .note("`kvroof replay --quality recall` and analyses of attention alone do without v");
}

void require_held_values(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                         const TraceLayer& shape, const CacheViews& caches) {
  for (const auto& cache : caches.all()) {
    const auto at = cache->first_unheld_value();
    if (!at) continue;
    throw Error(fmt::format("{}: v holds an element beyond what a cache of {} can hold {}, so nothing can be said of "
                            "outputs", trace.path().string(), name_of(cache->type()),
                            place_of(trace, sequence, layer, shape, *at, shape.v_width)))
        .note("another --kv may hold it, and --quality recall does without v");
  }
}

Error place_of_logit(const InfiniteLogit& logit, const TraceReader& trace, const TraceSequence& sequence,
                     LayerId layer) {
  const std::uint32_t heads = trace.manifest().layers[layer.value].query_heads;
  const std::string place = fmt::format("(sequence {}, layer {}, query head {}, token {})", sequence.id,
                                        layer.value + logit.head / heads, logit.head % heads, logit.position);
  const std::string what = logit.of_query ? "q holds NaN or infinity" : "q·k is beyond the range of float";
  return Error(fmt::format("{}: {} {}, so nothing can be said of attention", trace.path().string(), what, place))
      .note("record it anew with numbers that its type can hold, or import tensors without this layer");
}

}  // namespace kvroof
