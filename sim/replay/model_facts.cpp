#include "sim/replay/model_facts.hpp"

#include <fmt/format.h>

#include "sim/core/error.hpp"

namespace kvroof {

void require_served(std::span<const PolicySpec> points) {
  constexpr HostNeeds kServed = {HostNeed::kSelecting, HostNeed::kSlotPositions, HostNeed::kMerging,
                                 HostNeed::kWholeModel, HostNeed::kAllRows, HostNeed::kFuture,
                                 HostNeed::kTokenKinds, HostNeed::kOutputProjection, HostNeed::kRepetition};
  for (const PolicySpec& point : points) {
    if (const auto what = unserved(point, kServed)) throw usage_error(fmt::format("a replay does not know {}", *what));
  }
}

RowsView output_projection_of(const ReplayOptions& options, const TraceLayer& shape, LayerId layer) {
  if (!options.output_projection) {
    throw usage_error("a policy that weighs v by the model's output projection is replayed by `kvroof replay` alone");
  }
  const RowsView rows = options.output_projection(layer);
  const std::size_t width = std::size_t{shape.query_heads} * shape.v_width;
  if (rows.width != width) {
    throw usage_error(fmt::format("the output projection of layer {} takes {} elements, the trace has {} heads of {}",
                                  layer.value, rows.width, shape.query_heads, shape.v_width));
  }
  return rows;
}

std::vector<TokenKind> token_kinds_of(const ReplayOptions& options, const TraceSequence& sequence) {
  if (!options.token_kinds) {
    throw usage_error("a policy that tells kinds of tokens apart is replayed by `kvroof replay` alone");
  }
  std::vector<TokenKind> kinds = options.token_kinds(sequence);
  check(kinds.size() >= sequence.tokens, "a kind for each token of the sequence");
  return kinds;
}

}  // namespace kvroof
