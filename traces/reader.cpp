#include "traces/reader.hpp"

#include <algorithm>
#include <atomic>

#include "sim/core/files.hpp"
#include "traces/checksum.hpp"
#include "traces/kernels_db.hpp"
#include "traces/segment.hpp"
#include "traces/survey.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kQueryBlock = std::uint64_t{1} << 20;  // of queries, in bytes

}  // namespace

struct TraceReader::State {
  std::filesystem::path path;
  TraceManifest manifest;
  std::vector<JournalLine> lines;
  std::vector<SegmentIndex> segments;
  std::unique_ptr<std::atomic<bool>[]> verified;  // [segment]; two threads may both verify one, which is harmless

  // The error of damage that was found only now.
  [[nodiscard]] Error damaged(const std::string& problem) const {
    return damaged_trace(path, survey_trace(path, true), problem);
  }
  [[nodiscard]] OpenFile open_segment(std::size_t i) const;
  [[nodiscard]] std::size_t index_of(std::uint32_t sequence) const;
  // What a segment holds of a sequence, or null.
  [[nodiscard]] const SequenceIndex* find(std::size_t segment, std::size_t sequence) const;
  void read(std::size_t segment, const OpenFile& file, std::uint64_t offset, std::span<std::byte> to) const;
  template <class T>
  void read_values(std::size_t segment, const OpenFile& file, std::uint64_t offset, std::span<T> to) const {
    read(segment, file, offset, std::as_writable_bytes(to));
  }
};

OpenFile TraceReader::State::open_segment(std::size_t i) const {
  const auto fail = [&](const std::string& why) { return damaged(fmt::format("segment {}: {}", i, why)); };
  Result<OpenFile> file = open_file(path / segment_file(static_cast<std::uint32_t>(i)));
  if (!file) throw fail(file.error());
  if (!verified[i]) {
    const Result<std::uint64_t> sum = file_xxh3(file.value(), file.value().size);
    if (!sum) throw fail(sum.error());
    if (sum.value() != lines[i].xxh3) {
      throw fail(fmt::format("checksum {}, expected {}", to_hex(sum.value()), to_hex(lines[i].xxh3)));
    }
    verified[i] = true;
  }
  return std::move(file).value();
}

std::size_t TraceReader::State::index_of(std::uint32_t sequence) const {
  const auto it = std::find_if(manifest.sequences.begin(), manifest.sequences.end(),
                               [&](const TraceSequence& s) { return s.id == sequence; });
  check(it != manifest.sequences.end(), "only sequences of the manifest are read");
  return static_cast<std::size_t>(it - manifest.sequences.begin());
}

const SequenceIndex* TraceReader::State::find(std::size_t segment, std::size_t sequence) const {
  const std::vector<SequenceIndex>& all = segments[segment].sequences;
  const auto it = std::lower_bound(all.begin(), all.end(), sequence,
                                   [](const SequenceIndex& s, std::size_t i) { return s.sequence < i; });
  return it != all.end() && it->sequence == sequence ? &*it : nullptr;
}

void TraceReader::State::read(std::size_t segment, const OpenFile& file, std::uint64_t offset,
                              std::span<std::byte> to) const {
  if (auto problem = read_at(file, offset, to)) throw damaged(fmt::format("segment {}: {}", segment, problem->message));
}

TraceReader TraceReader::open(const std::filesystem::path& path) {
  Survey survey = survey_to_read(path, false);
  if (!survey.report.sealed || !survey.report.intact)
    throw damaged_trace(path, survey_to_read(path, true), survey.report.problems.front());
  TraceReader reader;
  reader.state_ = std::make_shared<State>();
  State& s = *reader.state_;
  s.path = path;
  s.manifest = std::move(*survey.manifest);
  s.lines = std::move(survey.lines);
  s.segments = std::move(survey.segments);
  s.verified = std::make_unique<std::atomic<bool>[]>(s.segments.size());
  return reader;
}

TraceReader TraceReader::open_attention(const std::filesystem::path& path) {
  TraceReader reader = open(path);
  if (has_attention(reader.manifest())) return reader;
  if (of_own_engine(reader.manifest())) {
    throw usage_error(fmt::format("{} is a run of kvroof's own engine without queries, keys and values", path.string()))
        .note("`kvroof record` captures them without --no-capture; `kvroof validate` reads the steps as they are");
  }
  throw usage_error(fmt::format("{} holds a profiler's records alone, no queries, keys and values", path.string()))
      .note(fmt::format("`kvroof report-kernels {}` reads it; traces with attention come from `kvroof record --model` "
                        "and `kvroof import qkv`",
                        path.string()));
}

const TraceManifest& TraceReader::manifest() const { return state_->manifest; }
const std::filesystem::path& TraceReader::path() const { return state_->path; }

LayerKeysValues TraceReader::keys_values(std::uint32_t sequence, LayerId layer) const {
  const State& s = *state_;
  const std::size_t index = s.index_of(sequence);
  check(layer.value < s.manifest.layers.size(), "only layers of the manifest are read");
  const RowBytes row = row_bytes(s.manifest.layers[layer.value], s.manifest.kv_type);
  LayerKeysValues result;
  result.tokens = s.manifest.sequences[index].tokens;
  result.k.resize(result.tokens * row.k);
  result.v.resize(result.tokens * row.v);
  for (std::size_t i = 0; i < s.segments.size(); ++i) {
    const SequenceIndex* part = s.find(i, index);
    if (part == nullptr || part->rows == 0) continue;
    const OpenFile file = s.open_segment(i);
    const LayerIndex& where = part->layers[layer.value];
    s.read(i, file, where.k, std::span(result.k).subspan(part->first_row * row.k, part->rows * row.k));
    s.read(i, file, where.v, std::span(result.v).subspan(part->first_row * row.v, part->rows * row.v));
  }
  return result;
}

void TraceReader::for_each_query_block(
    std::uint32_t sequence, LayerId layer,
    const std::function<void(std::uint32_t, std::uint32_t, std::span<const std::byte>)>& visit) const {
  const State& s = *state_;
  const std::size_t index = s.index_of(sequence);
  check(layer.value < s.manifest.layers.size(), "only layers of the manifest are read");
  const std::uint64_t row = row_bytes(s.manifest.layers[layer.value], s.manifest.kv_type).q;
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kQueryBlock / row));
  std::vector<std::byte> block;
  for (std::size_t i = 0; i < s.segments.size(); ++i) {
    const SequenceIndex* part = s.find(i, index);
    if (part == nullptr || part->rows == 0) continue;
    const OpenFile file = s.open_segment(i);
    for (std::uint32_t at = 0; at < part->rows; at += most) {
      const std::uint32_t rows = std::min(most, part->rows - at);
      block.resize(rows * row);
      s.read(i, file, part->layers[layer.value].q + at * row, block);
      visit(part->first_row + at, rows, block);
    }
  }
}

std::vector<std::int64_t> TraceReader::token_ids(std::uint32_t sequence) const {
  const State& s = *state_;
  const std::size_t index = s.index_of(sequence);
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < s.segments.size(); ++i) {
    const SequenceIndex* part = s.find(i, index);
    if (part == nullptr || part->id_count == 0) continue;
    ids.resize(part->first_id + std::size_t{part->id_count});
    s.read_values(i, s.open_segment(i), part->ids, std::span(ids).subspan(part->first_id));
  }
  return ids;
}

std::vector<float> TraceReader::logprobs(std::uint32_t sequence) const {
  const State& s = *state_;
  const std::size_t index = s.index_of(sequence);
  std::vector<float> values;
  for (std::size_t i = 0; i < s.segments.size(); ++i) {
    const SequenceIndex* part = s.find(i, index);
    if (part == nullptr || part->id_count == 0) continue;
    values.resize(part->first_id + std::size_t{part->id_count});
    s.read_values(i, s.open_segment(i), part->logprobs, std::span(values).subspan(part->first_id));
  }
  return values;
}

std::vector<EvictionRecord> TraceReader::evictions(std::uint32_t sequence, LayerId layer) const {
  const State& s = *state_;
  const std::size_t index = s.index_of(sequence);
  check(layer.value < s.manifest.layers.size(), "only layers of the manifest are read");
  const TraceLayer& shape = s.manifest.layers[layer.value];
  const std::uint32_t tokens = s.manifest.sequences[index].tokens;
  std::vector<EvictionRecord> result;
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < s.segments.size(); ++i) {
    const SequenceIndex* part = s.find(i, index);
    if (part == nullptr || part->layers.empty()) continue;
    const LayerIndex& where = part->layers[layer.value];
    if (where.eviction_count == 0) continue;
    rows.resize(std::size_t{where.eviction_count} * kEvictionColumns);
    s.read_values(i, s.open_segment(i), where.evictions, std::span(rows));
    for (std::size_t at = 0; at < rows.size(); at += kEvictionColumns) {
      const auto step = static_cast<std::uint32_t>(rows[at]);
      const auto head = static_cast<std::uint32_t>(rows[at + 1]);
      const auto position = static_cast<std::uint32_t>(rows[at + 2]);
      if (rows[at] < 0 || head >= shape.query_heads || position >= tokens) {
        throw s.damaged(fmt::format("segment {}: an eviction of step {}, head {}, position {} is out of range", i, step,
                                    head, position));
      }
      result.push_back({sequence, step, layer.value, head, position});
    }
  }
  return result;
}

std::vector<StepRecord> TraceReader::steps() const {
  const State& s = *state_;
  std::vector<StepRecord> steps;
  std::vector<std::int64_t> rows, experts, resident;
  for (std::size_t i = 0; i < s.segments.size(); ++i) {
    rows.resize(s.segments[i].step_count * kStepColumns);
    if (rows.empty()) continue;
    s.read_values(i, s.open_segment(i), s.segments[i].steps, std::span(rows));
    const auto read_each = [&](const std::optional<std::uint64_t>& where, std::vector<std::int64_t>& to) {
      to.assign(s.segments[i].step_count, 0);
      if (where) s.read_values(i, s.open_segment(i), *where, std::span(to));
    };
    read_each(s.segments[i].experts, experts);
    read_each(s.segments[i].resident, resident);
    for (std::size_t at = 0; at < rows.size(); at += kStepColumns) {
      const Result<StepRecord> step = step_from_row(std::span(rows).subspan(at, kStepColumns));
      if (!step) throw s.damaged(fmt::format("segment {}: {}", i, step.error()));
      const std::size_t n = at / kStepColumns;
      if (experts[n] < 0) throw s.damaged(fmt::format("segment {}: a negative count of experts", i));
      if (resident[n] < 0) throw s.damaged(fmt::format("segment {}: a cache of negative bytes", i));
      if (step.value().step != steps.size()) throw s.damaged(fmt::format("segment {}: its steps are out of order", i));
      steps.push_back(step.value());
      steps.back().experts = static_cast<std::uint64_t>(experts[n]);
      if (s.segments[i].resident) steps.back().kv_resident_bytes = static_cast<std::uint64_t>(resident[n]);
    }
  }
  const auto times = read_step_times(s.path / kKernelsFile);
  if (!times) throw s.damaged(fmt::format("{}: {}", kKernelsFile, times.error()));
  if (times.value().size() != steps.size()) {
    throw s.damaged(fmt::format("{}: {} steps, expected {}", kKernelsFile, times.value().size(), steps.size()));
  }
  for (std::size_t i = 0; i < steps.size(); ++i) std::tie(steps[i].start_ns, steps[i].end_ns) = times.value()[i];
  return steps;
}

TraceReport inspect_trace(const std::filesystem::path& path, bool verify) {
  return survey_to_read(path, verify).report;
}

}  // namespace kvroof
