#include "kernels/cuda/measure/stream_work.hpp"

namespace kvroof::cuda {

const char* name_of(StreamKind kind) {
  switch (kind) {
    case StreamKind::kCopy:
      return "copy";
    case StreamKind::kDriverCopy:
      return "driver_copy";
    case StreamKind::kRead:
      return "read";
    default:
      return "fill";
  }
}

double factor_of(StreamKind kind) { return kind == StreamKind::kCopy || kind == StreamKind::kDriverCopy ? 2 : 1; }

Streams::Streams(std::size_t arena, const CardFacts& card)
    : card_(card), from_(noise(open_.get(), Noise::kBytes, 1, arena)), to_(arena), sink_(16) {}

void Streams::launch(StreamKind kind, unsigned window, std::size_t bytes) {
  const std::size_t at = window % (arena() / bytes) * bytes;
  switch (kind) {
    case StreamKind::kCopy:
      return run_copy(open_.get(), from_.at(at), to_.at(at), bytes);
    case StreamKind::kDriverCopy:
      return run_driver_copy(open_.get(), from_.at(at), to_.at(at), bytes);
    case StreamKind::kRead:
      return run_read(open_.get(), from_.at(at), bytes, sink_.at<float>());
    case StreamKind::kFill:
      return run_fill(open_.get(), to_.at(at), bytes);
  }
}

Measured Streams::time(StreamKind kind, std::size_t bytes, double seconds) {
  TimedWork work(open_.get(), repetitions_for(2 * bytes, card_), [&](unsigned i) { launch(kind, i, bytes); },
                 factor_of(kind) * static_cast<double>(bytes));
  return measure(work, seconds);
}

}  // namespace kvroof::cuda
