#include "sim/replay/look_ahead.hpp"

#include <algorithm>

#include "sim/core/bytes_text.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMostBytes = 4ULL << 30;

void check_size(const TraceSequence& sequence, std::uint32_t heads) {
  const std::uint64_t bytes = FutureAttention::bytes(heads, sequence.prompt, sequence.tokens);
  if (bytes <= kMostBytes) return;
  throw usage_error(
      fmt::format("sequence {}: {} decoded tokens of {} heads: the attention that oracle-causal looks ahead to takes "
                  "{} a layer, more than {}",
                  sequence.id, sequence.tokens - sequence.prompt, heads, bytes_text(bytes), bytes_text(kMostBytes)))
      .note("record fewer new tokens, or leave oracle-causal out");
}

}  // namespace

std::unique_ptr<FutureAttention> look_ahead(const TraceReader& trace, const TraceSequence& sequence, LayerId layer,
                                            std::uint32_t block, ExactRows& rows) {
  const std::uint32_t heads = rows.layer().query_heads;
  check_size(sequence, heads);
  auto future = std::make_unique<FutureAttention>(heads, sequence.prompt, sequence.tokens);
  trace.for_each_query_block(sequence.id, layer, [&](std::uint32_t first, std::uint32_t count, auto q) {
    const std::size_t row_bytes = q.size() / count;
    const std::uint32_t end = first + count;
    for (std::uint32_t at = std::max(first, sequence.prompt); at < end; at += block) {
      const std::uint32_t some = std::min(block, end - at);
      rows.compute(at, some, q.subspan((at - first) * row_bytes, some * row_bytes), {.weights = true});
      for (std::uint32_t position = at; position < at + some; ++position) {
        for (std::uint32_t head = 0; head < heads; ++head) {
          future->set_row(head, TokenPos(position), {rows.weights(position, head), std::size_t{position} + 1});
        }
      }
    }
  });
  for (std::uint32_t head = 0; head < heads; ++head) future->finish(head);
  return future;
}

}  // namespace kvroof
