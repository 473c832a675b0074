// What memory gives, and what share of it each kernel reaches on cold data: bandwidth, compaction, top-k.
#include <algorithm>
#include <functional>

#include "kernels/cuda/measure/stream_work.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A launch after a read of other memory, which leaves nothing of its data in the cache of the chip, less that read.
Measured measure_cold(const Options& options, Stream& stream, const std::function<void()>& launch) {
  const std::size_t cold = pieces_of(16, options.card) * 16;
  const DeviceBuffer other = noise(stream, Noise::kBytes, 1, cold), sink(16);
  TimedWork reads(stream, 4, [&](unsigned) { run_read(stream, other.at(), cold, sink.at<float>()); });
  TimedWork both(stream, 4, [&](unsigned) {
    run_read(stream, other.at(), cold, sink.at<float>());
    launch();
  });
  const Measured flush = measure(reads, seconds_a_row(options));
  Measured m = measure(both, seconds_a_row(options));
  m.median -= flush.median;
  m.best -= flush.best;
  return m;
}

// Bytes/s of the fastest copy of so many bytes or more that the report has; 0: none.
double fastest_copy(const Report& report, std::size_t least) {
  double fastest = 0;
  for (const Json& row : report.document()["rows"]) {
    if ((row["what"] != "copy" && row["what"] != "driver_copy") || !row.contains("bytes_per_s")) continue;
    if (row["parameters"]["bytes"] >= least) fastest = std::max(fastest, row["bytes_per_s"].get<double>());
  }
  return fastest;
}

}  // namespace

double measure_copy(const Options& options) {
  Streams streams(options.small ? kMiB / 4 : 1024 * kMiB, options.card);
  const double ours = streams.time(StreamKind::kCopy, streams.arena(), seconds_a_row(options)).median;
  const double driver = streams.time(StreamKind::kDriverCopy, streams.arena(), seconds_a_row(options)).median;
  return 2.0 * static_cast<double>(streams.arena()) / std::min(ours, driver);
}

double measure_bandwidth(const Options& options, Report& report) {
  Streams streams(options.small ? kMiB / 4 : std::min(4096 * kMiB, options.device.free_bytes / 4 / kMiB * kMiB),
                  options.card);
  const std::size_t least = streams.arena() / 4;
  for (std::size_t bytes = streams.arena(); bytes >= streams.arena() / 256 && bytes >= 4096; bytes /= 4) {
    for (const StreamKind kind : {StreamKind::kCopy, StreamKind::kDriverCopy, StreamKind::kRead, StreamKind::kFill}) {
      const Json parameters = {{"bytes", bytes}};
      report.guarded(name_of(kind), parameters, [&] {
        const Measured m = streams.time(kind, bytes, seconds_a_row(options));
        const double moved = factor_of(kind) * static_cast<double>(bytes);
        const double own = factor_of(kind) > 1 && bytes >= least ? moved / m.median : 0;
        report.add(name_of(kind), parameters, results_of(m, moved, std::max(own, fastest_copy(report, least))));
      });
    }
  }
  return fastest_copy(report, least);
}

void measure_moves(const Options& options, Report& report, double limit) {
  constexpr std::uint32_t kRow = 256;  // bytes of 128 bf16 elements
  const std::uint32_t heads = options.small ? 2 : 32, tokens = options.small ? 32 : 4096;
  for (const std::uint32_t percent : {10U, 50U, 90U}) {
    const std::uint32_t kept = tokens * percent / 100;
    const Json parameters = {{"heads", heads}, {"prompt", tokens}, {"kept_percent", percent}, {"row_bytes", 2 * kRow}};
    report.guarded("compaction", parameters, [&] {
      OpenStream open;
      Stream& stream = open.get();
      const std::size_t rows = std::size_t{heads} * tokens, moves = std::size_t{heads} * kept;
      const DeviceBuffer from = noise(stream, Noise::kBytes, 1, 2 * rows * kRow), to(2 * rows * kRow);
      const DeviceBuffer positions = noise(stream, Noise::kBytes, 1, 8 * rows);
      std::vector<CacheSlots> sources, targets;
      std::vector<RowMove> order;
      for (std::uint32_t h = 0; h < heads; ++h) {
        const std::size_t row = std::size_t{h} * tokens;
        sources.push_back({from.at(row * kRow), from.at((rows + row) * kRow), nullptr, nullptr,
                           positions.at<std::uint32_t>(4 * row), nullptr});
        targets.push_back({to.at(row * kRow), to.at((rows + row) * kRow), nullptr, nullptr,
                           positions.at<std::uint32_t>(4 * (rows + row)), nullptr});
        for (std::uint32_t i = 0; i < kept; ++i) {
          order.push_back({h, static_cast<std::uint32_t>(std::uint64_t{i} * tokens / kept), i});
        }
      }
      const DeviceBuffer device_sources = uploaded(stream, sources), device_targets = uploaded(stream, targets);
      const DeviceBuffer device_order = uploaded(stream, order);
      MoveArguments a;
      a.from = device_sources.at<CacheSlots>();
      a.to = device_targets.at<CacheSlots>();
      a.rows = device_order.at<RowMove>();
      a.moves = static_cast<std::uint32_t>(moves);
      a.key_row_bytes = a.value_row_bytes = kRow;
      const Measured m = measure_cold(options, stream, [&] { run_moves(stream, a); });
      report.add("compaction", parameters, results_of(m, 4.0 * static_cast<double>(moves) * kRow, limit));
    });
  }
}

// Of a layer's heads after a prompt; a score and a position are read of each token, and a bit is written.
void measure_choice(const Options& options, Report& report, double limit) {
  const std::uint32_t heads = options.small ? 2 : 32;
  for (const std::uint32_t prompt : {4096U, 32768U}) {
    const std::uint32_t tokens = options.small ? prompt / 64 : prompt;
    for (const std::uint32_t percent : {10U, 50U}) {
      if (options.small && prompt > 4096) continue;
      const Json parameters = {{"heads", heads}, {"prompt", tokens}, {"kept_percent", percent}};
      report.guarded("top_k", parameters, [&] {
        OpenStream open;
        Stream& stream = open.get();
        const std::size_t all = std::size_t{heads} * tokens;
        const DeviceBuffer scores = noise(stream, Noise::kF32, 1, 4 * all);
        std::vector<std::uint32_t> positions(all);
        for (std::size_t i = 0; i < all; ++i) positions[i] = static_cast<std::uint32_t>(i % tokens);
        const DeviceBuffer device_positions = uploaded(stream, positions);
        std::vector<CacheSlots> slots(heads);
        for (std::uint32_t h = 0; h < heads; ++h) {
          slots[h].state = scores.at<std::uint32_t>(std::size_t{4} * h * tokens);
          slots[h].positions = device_positions.at<std::uint32_t>(std::size_t{4} * h * tokens);
        }
        const DeviceBuffer device_slots = uploaded(stream, slots);
        const std::size_t words = std::size_t{heads} * ((tokens + 31) / 32);
        const DeviceBuffer chosen(4 * words);
        ChooseArguments a;
        a.slots = device_slots.at<CacheSlots>();
        a.heads = heads;
        a.length = a.end = tokens;
        a.count = tokens - tokens * percent / 100;
        a.chosen = chosen.at<std::uint32_t>();
        const Measured m = measure_cold(options, stream, [&] { run_choose_lowest(stream, a); });
        report.add("top_k", parameters, results_of(m, static_cast<double>(8 * all + 4 * words), limit));
      });
    }
  }
}

void measure_limits(const Options& options, Report& report) {
  const double limit = measure_bandwidth(options, report);
  measure_linear(options, report, limit);
  measure_attention(options, report, limit);
  measure_moves(options, report, limit);
  measure_choice(options, report, limit);
}

}  // namespace kvroof::suite
