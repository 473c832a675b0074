#include "traces/writer.hpp"

#include <algorithm>
#include <future>
#include <system_error>

#include "sim/core/files.hpp"
#include "traces/journal.hpp"
#include "traces/kernels_db.hpp"
#include "traces/segment.hpp"
#include "traces/writer_lock.hpp"

namespace kvroof {
namespace {

void append(std::vector<std::byte>& to, std::span<const std::byte> from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Whether it was not there.
bool create_folder(const std::filesystem::path& path) {
  std::error_code error;
  const bool created = std::filesystem::create_directory(path, error);
  if (error) throw Error(fmt::format("cannot create the folder {}: {}", path.string(), error.message()));
  return created;
}

Error exists_already(const std::filesystem::path& path) {
  return usage_error(fmt::format("{} exists already", path.string())).note("choose another name, or remove it first");
}

// The folder (or an empty one that is there already), its lock, segments/ and the first manifest.
void create_trace(const std::filesystem::path& path, std::string_view manifest, std::optional<WriterLock>& lock) {
  std::error_code error;
  const bool existed = std::filesystem::exists(path, error);
  if (existed && !(std::filesystem::is_directory(path, error) && std::filesystem::is_empty(path, error))) {
    throw exists_already(path);
  }
  create_folder(path);
  bool is_own = false;
  try {
    lock.emplace(path, WriterLock::Of::kNewTrace);
    is_own = create_folder(path / kSegmentsFolder);
    if (!is_own) throw exists_already(path);  // another recording had the same name, and came and went meanwhile
    write_text_file(path / kManifestFile, manifest);
  } catch (...) {
    if (is_own) std::filesystem::remove(path / kSegmentsFolder, error);
    if (lock) lock->remove();
    if (!existed) std::filesystem::remove(path, error);  // which stays where there is another's trace
    throw;
  }
}

}  // namespace

struct TraceWriter::State {
  std::optional<WriterLock> lock;  // declared first: held until nothing below writes any more
  std::filesystem::path path;
  TraceManifest manifest;
  TraceManifest first_manifest;  // as it was at the start: what segment 0 carries
  std::uint64_t segment_bytes = 0;
  SegmentBuffer open;                                // being filled
  std::uint64_t buffered = 0;                        // bytes in `open`
  std::vector<std::vector<std::uint32_t>> next_row;  // [sequence][layer]
  std::vector<std::uint32_t> next_id;                // [sequence]
  std::vector<StepRecord> steps;
  std::vector<RowBytes> row;  // [layer]
  std::optional<KernelDatabase> kernels;  // once a profiler asked for it
  Seal seal;                  // segments, steps and bytes so far
  bool in_step = false;  // rows or evictions came after the last end_step
  // Where the last whole step ends within `open`, and `buffered` then.
  struct Mark {
    std::uint32_t rows = 0, ids = 0;      // of the sequence
    std::vector<std::size_t> evictions;   // [layer] numbers
  };
  std::vector<Mark> marks;  // [sequence]
  std::uint64_t marked_bytes = 0;
  bool failed = false;
  bool sealed = false;
  // Makes the last written segment durable. Declared last: its destructor waits for the thread that uses the rest.
  std::future<void> pending;

  [[nodiscard]] std::size_t index_of(std::uint32_t sequence) const;
  void reset(SegmentBuffer& buffer) const;
  void mark_step();
  void close_segment();
  void wait();
  void make_durable(const JournalLine& line) const;
};

std::size_t TraceWriter::State::index_of(std::uint32_t sequence) const {
  // Ids are nearly always 0, 1, 2, …
  if (sequence < manifest.sequences.size() && manifest.sequences[sequence].id == sequence) return sequence;
  const auto it = std::find_if(manifest.sequences.begin(), manifest.sequences.end(),
                               [&](const TraceSequence& s) { return s.id == sequence; });
  check(it != manifest.sequences.end(), "what is recorded belongs to a sequence of the manifest");
  return static_cast<std::size_t>(it - manifest.sequences.begin());
}

// Empties a buffer but keeps its memory for the next segment.
void TraceWriter::State::reset(SegmentBuffer& buffer) const {
  buffer.steps.clear();
  buffer.experts.clear();
  buffer.resident.clear();
  buffer.sequences.resize(manifest.sequences.size());
  for (std::size_t s = 0; s < buffer.sequences.size(); ++s) {
    SequenceBuffer& sequence = buffer.sequences[s];
    sequence.first_row = next_row[s][0];
    sequence.first_id = next_id[s];
    sequence.ids.clear();
    sequence.logprobs.clear();
    sequence.layers.resize(manifest.layers.size());
    for (LayerBuffer& layer : sequence.layers) {
      layer.q.clear();
      layer.k.clear();
      layer.v.clear();
      layer.evictions.clear();
    }
  }
}

void TraceWriter::State::mark_step() {
  marked_bytes = buffered;
  marks.resize(open.sequences.size());
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const SequenceBuffer& sequence = open.sequences[i];
    marks[i] = {next_row[i][0], next_id[i], {}};
    for (const LayerBuffer& layer : sequence.layers) marks[i].evictions.push_back(layer.evictions.size());
  }
}

// Runs on a thread of its own, so that the disk does not hold up the engine.
void TraceWriter::State::make_durable(const JournalLine& line) const {
  sync_path(path / segment_file(line.segment));
  sync_path(path / kSegmentsFolder);
  append_text(path / kJournalFile, journal_line_to_json(line));
}

void TraceWriter::State::wait() {
  if (pending.valid()) pending.get();
}

// The engine's own thread writes the segment: once it goes on, a kill cannot take the segment away.
void TraceWriter::State::close_segment() {
  failed = true;  // unless the end of this function is reached
  const JournalLine line = write_segment(path, open, first_manifest);
  seal.segments += 1;
  seal.steps += line.steps;
  seal.bytes += line.bytes;
  open.segment += 1;
  open.first_step = static_cast<std::uint32_t>(steps.size());
  reset(open);
  buffered = 0;
  wait();
  try {
    pending = std::async(std::launch::async, [this, line] { make_durable(line); });
  } catch (const std::system_error&) {  // no thread is to be had
    make_durable(line);
  }
  failed = false;
}

TraceWriter::TraceWriter(std::filesystem::path path, TraceManifest manifest, std::uint64_t segment_bytes)
    : state_(std::make_unique<State>()) {
  const std::string text = manifest_to_json(manifest);
  static_cast<void>(manifest_from_json(text).or_throw("cannot record this run"));
  State& s = *state_;
  s.path = std::move(path);
  s.manifest = std::move(manifest);
  s.first_manifest = s.manifest;
  s.segment_bytes = segment_bytes;
  for (const TraceLayer& layer : s.manifest.layers) s.row.push_back(row_bytes(layer, s.manifest.kv_type));
  s.next_row.assign(s.manifest.sequences.size(), std::vector<std::uint32_t>(s.manifest.layers.size()));
  s.next_id.assign(s.manifest.sequences.size(), 0);
  s.reset(s.open);
  s.mark_step();
  create_trace(s.path, text, s.lock);
}

TraceWriter::~TraceWriter() = default;

void TraceWriter::add_rows(std::uint32_t sequence, LayerId layer, std::uint32_t first, std::uint32_t count,
                           std::span<const std::byte> q, std::span<const std::byte> k, std::span<const std::byte> v) {
  State& s = *state_;
  const std::size_t index = s.index_of(sequence);
  check(layer.value < s.row.size(), "a recorded layer is one of the manifest");
  const RowBytes& row = s.row[layer.value];
  check(q.size() == count * row.q && k.size() == count * row.k && v.size() == count * row.v,
        "recorded rows have the widths of the manifest");
  check(first == s.next_row[index][layer.value], "rows are recorded in order, without gaps");
  LayerBuffer& buffer = s.open.sequences[index].layers[layer.value];
  append(buffer.q, q);
  append(buffer.k, k);
  append(buffer.v, v);
  s.next_row[index][layer.value] += count;
  s.in_step = true;
  s.buffered += q.size() + k.size() + v.size();
}

void TraceWriter::add_tokens(std::uint32_t sequence, std::uint32_t first, std::span<const std::int64_t> ids,
                             std::span<const float> logprobs) {
  State& s = *state_;
  const std::size_t index = s.index_of(sequence);
  check(ids.size() == logprobs.size(), "each token id has a log-probability");
  check(first == s.next_id[index], "token ids are recorded in order, without gaps");
  SequenceBuffer& buffer = s.open.sequences[index];
  buffer.ids.insert(buffer.ids.end(), ids.begin(), ids.end());
  buffer.logprobs.insert(buffer.logprobs.end(), logprobs.begin(), logprobs.end());
  s.next_id[index] += static_cast<std::uint32_t>(ids.size());
  s.buffered += ids.size_bytes() + logprobs.size_bytes();
}

void TraceWriter::add_eviction(const EvictionRecord& eviction) {
  State& s = *state_;
  constexpr std::uint32_t kLimit = std::numeric_limits<std::int32_t>::max();
  check(eviction.layer < s.row.size(), "an eviction belongs to a layer of the manifest");
  check(eviction.step <= kLimit && eviction.head <= kLimit && eviction.position <= kLimit,
        "an eviction fits 32-bit integers");
  std::vector<std::int32_t>& to = s.open.sequences[s.index_of(eviction.sequence)].layers[eviction.layer].evictions;
  for (const std::uint32_t value : {eviction.step, eviction.head, eviction.position}) {
    to.push_back(static_cast<std::int32_t>(value));
  }
  s.buffered += kEvictionColumns * sizeof(std::int32_t);
  s.in_step = true;
}

void TraceWriter::end_step(const StepRecord& step) {
  State& s = *state_;
  check(!s.failed && !s.sealed, "nothing is recorded after a failure or after the seal");
  check(step.step == s.steps.size(), "engine steps are numbered in the order of execution");
  check(step.phase == "prefill" || step.phase == "decode", "a step is prefill or decode");
  for (const std::vector<std::uint32_t>& layers : s.next_row) {
    check(std::all_of(layers.begin(), layers.end(), [&](std::uint32_t n) { return n == layers[0]; }),
          "a step records the same rows in every layer");
  }
  s.in_step = false;
  s.steps.push_back(step);
  std::vector<std::int64_t>& row = s.open.steps;
  row.insert(row.end(), {step.step, step.phase == "decode" ? 1 : 0, step.sequences});
  for (const std::uint64_t bytes : step.bytes.bytes) row.push_back(static_cast<std::int64_t>(bytes));
  s.open.experts.push_back(static_cast<std::int64_t>(step.experts));
  if (step.kv_resident_bytes) s.open.resident.push_back(static_cast<std::int64_t>(*step.kv_resident_bytes));
  s.buffered += kStepColumns * sizeof(std::int64_t);
  if (s.buffered >= s.segment_bytes) s.close_segment();
  s.mark_step();
}

void TraceWriter::forget_step() {
  State& s = *state_;
  if (s.failed) return;  // nothing more is written
  for (std::size_t i = 0; i < s.marks.size(); ++i) {
    SequenceBuffer& sequence = s.open.sequences[i];
    const State::Mark& mark = s.marks[i];
    for (std::size_t l = 0; l < sequence.layers.size(); ++l) {
      LayerBuffer& layer = sequence.layers[l];
      const std::size_t rows = mark.rows - sequence.first_row;
      layer.q.resize(rows * s.row[l].q);
      layer.k.resize(rows * s.row[l].k);
      layer.v.resize(rows * s.row[l].v);
      layer.evictions.resize(mark.evictions[l]);
      s.next_row[i][l] = mark.rows;
    }
    sequence.ids.resize(mark.ids - sequence.first_id);
    sequence.logprobs.resize(mark.ids - sequence.first_id);
    s.next_id[i] = mark.ids;
  }
  s.buffered = s.marked_bytes;
  s.in_step = false;
}

void TraceWriter::set_stop_reason(std::uint32_t sequence, std::string reason) {
  state_->manifest.sequences[state_->index_of(sequence)].stop_reason = std::move(reason);
}

ProfileSink& TraceWriter::profile() {
  State& s = *state_;
  check(!s.sealed, "nothing is recorded after the seal");
  if (!s.kernels) s.kernels.emplace(s.path / kKernelsFile);
  return *s.kernels;
}

void TraceWriter::seal() {
  State& s = *state_;
  check(!s.failed && !s.sealed, "a trace is sealed once, and never after a failure");
  check(!s.in_step, "every step is ended before the seal");
  if (s.buffered > 0) s.close_segment();
  s.failed = true;  // unless the end of this function is reached
  s.wait();
  for (std::size_t i = 0; i < s.manifest.sequences.size(); ++i) s.manifest.sequences[i].tokens = s.next_row[i][0];
  static_cast<void>(profile());
  s.kernels->complete(s.steps);
  s.kernels.reset();
  const std::string manifest = manifest_to_json(s.manifest);
  write_text_file(s.path / kManifestFile, manifest);
  append_text(s.path / kJournalFile, "");  // a run without a step has a journal as well
  sync_path(s.path / kJournalFile);
  write_seal(s.path, s.seal);
  s.lock->remove();
  s.failed = false;
  s.sealed = true;
}

void TraceWriter::set_linear(std::string by) { state_->manifest.linear = std::move(by); }

bool TraceWriter::can_seal() const { return !state_->failed && !state_->sealed; }

std::uint64_t TraceWriter::bytes_written() const { return state_->seal.bytes; }

void write_whole_trace(const std::filesystem::path& out, TraceManifest manifest,
                       const std::function<void(TraceWriter&)>& write) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(out, ignored);
  std::optional<TraceWriter> writer(std::in_place, out, std::move(manifest));
  try {
    write(*writer);
    writer->seal();
  } catch (...) {
    writer.reset();
    // What was wrong is told, not that the folder is gone as well.
    for (std::filesystem::directory_iterator at(out, ignored), end; at != end; at.increment(ignored)) {
      std::filesystem::remove_all(at->path(), ignored);
    }
    if (!existed) std::filesystem::remove(out, ignored);
    throw;
  }
}

}  // namespace kvroof
