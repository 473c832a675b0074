#include "sim/replay/row_cache.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "sim/core/bytes_text.hpp"
#include "sim/core/error.hpp"
#include "traces/journal.hpp"
#include "traces/segment.hpp"

namespace kvroof {
namespace {

constexpr std::string_view kFormat = "kvroof-rows-1";
constexpr std::size_t kPeakColumns = 4;  // of a row: sum, token, exponential, offset

// Codes of the rows before `position`, of one head.
std::uint64_t codes_before(std::uint64_t position) { return position * (position + 1) / 2; }

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(fmt::format("{}: {}; delete the file, and the replay makes it again", path.string(), what));
}

}  // namespace

RowCache::RowCache(const TraceReader& trace, std::filesystem::path folder) : folder_(std::move(folder)) {
  trace_ = to_hex(xxh3(read_text_file(trace.path() / kSealFile, kMaxTextFile).or_throw(trace.path().string())));
  std::error_code problem;
  std::filesystem::create_directories(folder_, problem);
  if (problem) {
    throw Error(fmt::format("--row-cache {}: cannot make the folder: {}", folder_.string(), problem.message()));
  }
  for (const TraceSequence& sequence : trace.manifest().sequences) {
    if (sequence.tokens < sequence.prompt) continue;  // it is not replayed
    for (std::uint32_t l = 0; l < trace.manifest().layers.size(); ++l) {
      if (std::filesystem::exists(path_of(sequence.id, l))) continue;
      const std::uint64_t of_head = codes_before(sequence.tokens) + sequence.tokens * kPeakColumns * sizeof(float);
      missing_bytes_ += of_head * trace.manifest().layers[l].query_heads;
    }
  }
  const std::filesystem::space_info space = std::filesystem::space(folder_, problem);
  if (!problem && space.available < missing_bytes_) {
    throw Error(fmt::format("--row-cache {}: the attention rows of {} take {}, and {} are free there; name a folder "
                            "with more room, or replay without it",
                            folder_.string(), trace.path().string(), bytes_text(missing_bytes_),
                            bytes_text(space.available)));
  }
}

std::filesystem::path RowCache::path_of(std::uint32_t sequence, std::uint32_t layer) const {
  return folder_ / fmt::format("s{}.l{}.safetensors", sequence, layer);
}

std::vector<TensorToWrite> RowCache::tensors() const {
  const std::uint64_t heads = layer_->query_heads;
  return {{"codes", DType::kU8, {heads * codes_before(tokens_)}, {}},
          {"peaks", DType::kF32, {tokens_, heads, kPeakColumns}, {}},
          {"checksum", DType::kU8, {8}, {}}};
}

std::map<std::string, std::string> RowCache::metadata() const {
  return {{"format", std::string(kFormat)}, {"trace", trace_}};
}

bool RowCache::start_layer(std::uint32_t sequence, LayerId number, const TraceLayer& layer, std::uint32_t tokens) {
  layer_ = &layer;
  tokens_ = tokens;
  file_.reset();
  part_.reset();
  const std::filesystem::path path = path_of(sequence, number.value);
  if (std::filesystem::exists(path)) {
    open(path);
    return false;
  }
  part_.emplace(path);
  hash_ = std::make_unique<Xxh3>();
  encoder_.start_layer(layer.query_heads, tokens);
  peaks_.assign(std::size_t{tokens} * layer.query_heads * kPeakColumns, 0.0F);
  const std::string head = safetensors_head(tensors(), metadata());
  put(std::as_bytes(std::span(head)));
  return true;
}

void RowCache::put(std::span<const std::byte> bytes) {
  hash_->update(bytes);
  part_->write(bytes);
}

void RowCache::open(const std::filesystem::path& path) {
  Result<SafetensorsFile> opened = SafetensorsFile::open(path);
  if (!opened) refuse(path, opened.error());
  file_ = std::move(opened).value();
  const SafetensorsHeader& header = file_->header();
  if (header.metadata != metadata()) {
    throw Error(fmt::format("{}: these are not the attention rows of this trace; name another folder with "
                            "--row-cache, or delete this one",
                            path.string()));
  }
  for (const TensorToWrite& expected : tensors()) {
    const TensorInfo* found = header.find(expected.name);
    if (found == nullptr || found->type != expected.type || found->shape != expected.shape) {
      refuse(path, fmt::format("tensor '{}' is not there as {} [{}]", expected.name,
                               safetensors_name_of(expected.type), fmt::join(expected.shape, ", ")));
    }
  }
  const TensorInfo& checksum = *header.find("checksum");
  const OpenFile bytes = open_file(path).or_throw(path.string());
  const SegmentChecksums found = segment_checksums(bytes, checksum.offset).or_throw(path.string());
  if (!found.own_right) refuse(path, "its checksum is wrong");
  peaks_ = file_->read_floats(*header.find("peaks"));
  for (std::size_t i = 0; i < peaks_.size(); i += kPeakColumns) {
    const std::size_t position = i / kPeakColumns / layer_->query_heads;
    const float token = peaks_[i + 1];
    const bool is_own = token >= 0 && token <= static_cast<float>(position) && token == std::floor(token);
    if (!is_own || !(peaks_[i + 2] > 0) || !std::isfinite(peaks_[i + 3])) {
      refuse(path, fmt::format("row {} has no peak among its own tokens", position));
    }
  }
}

std::span<std::uint8_t> RowCache::codes_of(std::uint32_t first, std::uint32_t position, std::size_t head) {
  const std::size_t tokens = std::size_t{position} + 1;
  const std::size_t row = layer_->query_heads * (codes_before(position) - codes_before(first));
  return std::span(codes_).subspan(row + head * tokens, tokens);
}

void RowCache::compute(ExactRows& rows, std::uint32_t first, std::uint32_t count, std::span<const std::byte> q,
                       RowsWanted wanted, ThreadPool& pool) {
  const std::size_t heads = layer_->query_heads;
  codes_.resize(heads * (codes_before(first + count) - codes_before(first)));
  if (makes()) {
    make(rows, first, count, q, pool);
  } else {
    file_->read(*file_->header().find("codes"), heads * codes_before(first), std::as_writable_bytes(std::span(codes_)));
    rows.take_queries(count, q);
  }
  const std::size_t stride = heads * tokens_;
  logits_.resize(count * stride);
  pool.parallel_for(count * heads, [&](std::size_t i) {
    const std::uint32_t position = first + static_cast<std::uint32_t>(i / heads);
    const std::size_t tokens = std::size_t{position} + 1, head = i % heads;
    const float* peak = peaks_.data() + (position * heads + head) * kPeakColumns;
    decode_row(codes_of(first, position, head), {peak[0], static_cast<std::uint32_t>(peak[1]), peak[2], peak[3]},
               rows.first_visible(position),
               std::span(logits_).subspan((position - first) * stride + head * tokens, tokens));
  });
  rows.compute_from_logits(first, count, logits_, stride, wanted);
}

// Each head's rows in their order, since one row's rounding depends on those before.
void RowCache::make(ExactRows& rows, std::uint32_t first, std::uint32_t count, std::span<const std::byte> q,
                    ThreadPool& pool) {
  const std::size_t heads = layer_->query_heads;
  rows.compute(first, count, q, {});
  pool.parallel_for(heads, [&](std::size_t head) {
    for (std::uint32_t position = first; position < first + count; ++position) {
      const std::size_t tokens = std::size_t{position} + 1;
      const auto h = static_cast<std::uint32_t>(head);
      const RowPeak peak = encoder_.encode(h, {rows.logits(position, h), tokens}, rows.first_visible(position),
                                           codes_of(first, position, head));
      // Token numbers are exact: a trace has fewer than 2^24.
      float* to = peaks_.data() + (position * heads + head) * kPeakColumns;
      to[0] = peak.sum;
      to[1] = static_cast<float>(peak.token);
      to[2] = peak.weight;
      to[3] = peak.offset;
    }
  });
  put(std::as_bytes(std::span(codes_)));
  if (first + count == tokens_) finish_layer();
}

void RowCache::finish_layer() {
  put(std::as_bytes(std::span(peaks_)));
  part_->write(checksum_bytes(hash_->digest()));
  part_->commit();
  part_.reset();
}

}  // namespace kvroof
