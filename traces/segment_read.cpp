// Checks of segments against the manifest and against each other.
#include <algorithm>
#include <unordered_map>

#include "sim/core/text.hpp"
#include "traces/checksum.hpp"
#include "traces/segment.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMaxStep = std::uint64_t{1} << 31;
constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 24;
constexpr std::size_t kReadBlock = std::size_t{1} << 20;

// Takes expected tensors out of a header one by one; the first problem stays.
class Tensors {
 public:
  explicit Tensors(const SafetensorsHeader& header) : header_(header) {
    for (const TensorInfo& t : header.tensors) left_.emplace(t.name, &t);
  }

  // The tensor, or null when it is absent or not what was expected.
  const TensorInfo* take(const std::string& name, DType type, std::vector<std::uint64_t> inner) {
    const auto it = left_.find(name);
    if (it == left_.end()) return nullptr;
    const TensorInfo* tensor = it->second;
    left_.erase(it);
    inner.insert(inner.begin(), tensor->shape.empty() ? 0 : tensor->shape[0]);
    if (tensor->type != type || tensor->shape != inner) {
      refuse("tensor '{}' is {} [{}], expected {} [{}]", name, safetensors_name_of(tensor->type),
             fmt::join(tensor->shape, ", "), safetensors_name_of(type), fmt::join(inner, ", "));
      return nullptr;
    }
    return tensor;
  }

  // A whole number below `limit` in __metadata__.
  std::optional<std::uint32_t> number(const std::string& key, std::uint64_t limit) {
    const auto it = header_.metadata.find(key);
    if (it == header_.metadata.end()) return std::nullopt;
    const std::string& text = it->second;
    const auto value = parse_number<std::uint64_t>(text);
    if (value && *value < limit) return static_cast<std::uint32_t>(*value);
    refuse("__metadata__: {} is '{}', expected a whole number below {}", key, shown(text), limit);
    return std::nullopt;
  }

  template <class... Args>
  void refuse(fmt::format_string<Args...> text, Args&&... args) {
    if (problem_.empty()) problem_ = fmt::format(text, std::forward<Args>(args)...);
  }

  // A tensor left over would be content that a reader silently misses.
  void refuse_leftovers() {
    for (const TensorInfo& t : header_.tensors) {
      if (left_.contains(t.name) && !t.name.starts_with("x-")) refuse("unknown tensor '{}'", t.name);
    }
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  const SafetensorsHeader& header_;
  std::unordered_map<std::string_view, const TensorInfo*> left_;
  std::string problem_;
};

// q, k and v of one layer; the number of rows, or nothing when none of the three is there.
std::optional<std::uint64_t> index_layer(Tensors& tensors, const std::string& prefix, const TraceLayer& layer,
                                         DType type, LayerIndex& index) {
  if (const TensorInfo* e = tensors.take(prefix + "evictions", DType::kI32, {kEvictionColumns})) {
    index.evictions = e->offset;
    index.eviction_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(e->shape[0], kMaxStep));
    if (e->shape[0] >= kMaxStep) tensors.refuse("tensor '{}evictions' is too long", prefix);
  }
  const TensorInfo* q = tensors.take(prefix + "q", type, {layer.query_heads, layer.k_width});
  const TensorInfo* k = tensors.take(prefix + "k", type, {layer.kv_heads, layer.k_width});
  const TensorInfo* v = tensors.take(prefix + "v", type, {layer.kv_heads, layer.v_width});
  if (q == nullptr && k == nullptr && v == nullptr) return std::nullopt;
  if (q == nullptr || k == nullptr || v == nullptr || q->shape[0] != k->shape[0] || q->shape[0] != v->shape[0]) {
    tensors.refuse("{}q, {}k and {}v do not have the same number of rows", prefix, prefix, prefix);
    return std::nullopt;
  }
  index.q = q->offset;
  index.k = k->offset;
  index.v = v->offset;
  return q->shape[0];
}

// Where a tensor of one number for each step lies.
std::optional<std::uint64_t> index_steps(Tensors& tensors, const std::string& name, std::uint32_t steps) {
  const TensorInfo* tensor = tensors.take(name, DType::kI64, {});
  if (tensor == nullptr) return std::nullopt;
  if (tensor->shape[0] != steps) tensors.refuse("the tensor '{}' has no number for each step", name);
  return tensor->offset;
}

void index_rows(Tensors& tensors, const std::string& prefix, const TraceManifest& manifest, SequenceIndex& index) {
  index.layers.resize(manifest.layers.size());
  for (std::size_t l = 0; l < manifest.layers.size() && tensors.problem().empty(); ++l) {
    const auto rows =
        index_layer(tensors, fmt::format("{}l{}.", prefix, l), manifest.layers[l], manifest.kv_type, index.layers[l])
            .value_or(0);
    if (l == 0 && rows <= kMaxTokens) index.rows = static_cast<std::uint32_t>(rows);
    if (rows != index.rows)
      tensors.refuse("layer {} has {} rows of sequence '{}', layer 0 has {}", l, rows, prefix, index.rows);
  }
}

void index_ids(Tensors& tensors, const std::string& prefix, SequenceIndex& index) {
  const TensorInfo* ids = tensors.take(prefix + "ids", DType::kI64, {});
  const TensorInfo* logprobs = tensors.take(prefix + "logprobs", DType::kF32, {});
  if (ids == nullptr || logprobs == nullptr || ids->shape[0] != logprobs->shape[0] || ids->shape[0] > kMaxTokens) {
    tensors.refuse("{}ids and {}logprobs do not have the same number of tokens", prefix, prefix);
    return;
  }
  index.ids = ids->offset;
  index.logprobs = logprobs->offset;
  index.id_count = static_cast<std::uint32_t>(ids->shape[0]);
}

}  // namespace

Result<SegmentIndex> index_segment(const SafetensorsHeader& header, const TraceManifest& manifest) {
  Tensors tensors(header);
  const std::string format = fmt::format("kvroof-trace-{}", kTraceFormatVersion);
  const auto found = header.metadata.find("format");
  if (found == header.metadata.end() || found->second != format) return failure("not a segment of format {}", format);

  SegmentIndex index;
  index.segment = tensors.number("segment", kMaxStep).value_or(0);
  index.first_step = tensors.number("first_step", kMaxStep).value_or(0);
  index.step_count = tensors.number("steps", kMaxStep).value_or(0);
  const TensorInfo* steps = tensors.take("steps", DType::kI64, {kStepColumns});
  if ((steps == nullptr ? 0 : steps->shape[0]) != index.step_count) {
    tensors.refuse("the tensor 'steps' does not hold the {} steps of this segment", index.step_count);
  }
  if (steps != nullptr) index.steps = steps->offset;
  index.experts = index_steps(tensors, "x-experts", index.step_count);
  index.resident = index_steps(tensors, "x-kv-resident", index.step_count);
  for (std::size_t s = 0; s < manifest.sequences.size() && tensors.problem().empty(); ++s) {
    const std::string prefix = fmt::format("s{}.", manifest.sequences[s].id);
    const auto first_row = tensors.number(prefix + "first_row", kMaxTokens);
    const auto first_id = tensors.number(prefix + "first_id", kMaxTokens);
    if (!first_row && !first_id) continue;
    SequenceIndex sequence;
    sequence.sequence = static_cast<std::uint32_t>(s);
    sequence.first_row = first_row.value_or(0);
    sequence.first_id = first_id.value_or(0);
    if (first_row) index_rows(tensors, prefix, manifest, sequence);
    if (first_id) index_ids(tensors, prefix, sequence);
    index.sequences.push_back(std::move(sequence));
  }
  if (const TensorInfo* checksum = tensors.take("checksum", DType::kU8, {})) {
    if (checksum->bytes != 8 || checksum != &header.tensors.back())
      tensors.refuse("the tensor 'checksum' is not the last 8 bytes");
    index.own_checksum = checksum->offset;
  }
  tensors.refuse_leftovers();
  if (!tensors.problem().empty()) return Failure{tensors.problem()};
  return index;
}

std::optional<Failure> SegmentChain::append(const SegmentIndex& segment) {
  if (segment.segment != segments_) return failure("it says that it is segment {}", segment.segment);
  if (segment.first_step != steps_) return failure("it starts at step {}, expected {}", segment.first_step, steps_);
  if (std::uint64_t{steps_} + segment.step_count > kMaxStep) return failure("more than {} steps", kMaxStep);
  for (const SequenceIndex& s : segment.sequences) {
    if (!s.layers.empty() && s.first_row != rows_[s.sequence]) {
      return failure("sequence {} starts at row {}, expected {}", s.sequence, s.first_row, rows_[s.sequence]);
    }
    if (s.id_count > 0 && s.first_id != ids_[s.sequence]) {
      return failure("the ids of sequence {} start at {}, expected {}", s.sequence, s.first_id, ids_[s.sequence]);
    }
    if (rows_[s.sequence] + std::uint64_t{s.rows} > kMaxTokens ||
        ids_[s.sequence] + std::uint64_t{s.id_count} > kMaxTokens) {
      return failure("sequence {} has more than {} tokens", s.sequence, kMaxTokens);
    }
  }
  for (const SequenceIndex& s : segment.sequences) {
    rows_[s.sequence] += s.rows;
    ids_[s.sequence] += s.id_count;
  }
  ++segments_;
  steps_ += segment.step_count;
  return std::nullopt;
}

Result<SegmentChecksums> segment_checksums(const OpenFile& file, std::optional<std::uint64_t> own_checksum) {
  std::vector<std::byte> block(static_cast<std::size_t>(std::min<std::uint64_t>(kReadBlock, file.size)));
  Xxh3 hash;
  SegmentChecksums result;
  const std::uint64_t cut = own_checksum.value_or(file.size);
  for (std::uint64_t at = 0; at < file.size;) {
    const std::uint64_t stop = at < cut ? cut : file.size;
    const auto part = std::span(block).first(static_cast<std::size_t>(std::min<std::uint64_t>(kReadBlock, stop - at)));
    if (auto problem = read_at(file, at, part)) return *problem;
    if (own_checksum && at == cut && part.size() == 8) {
      std::uint64_t stored = 0;
      for (std::size_t i = 8; i-- > 0;) stored = stored << 8 | static_cast<std::uint64_t>(part[i]);
      result.own_right = stored == hash.digest();
    }
    hash.update(part);
    at += part.size();
  }
  result.file = hash.digest();
  return result;
}

Result<StepRecord> step_from_row(std::span<const std::int64_t> row) {
  if (std::any_of(row.begin(), row.end(), [](std::int64_t x) { return x < 0; }))
    return failure("a negative count in 'steps'");
  if (row[0] >= static_cast<std::int64_t>(kMaxStep) || row[1] > 1 || row[2] >= static_cast<std::int64_t>(kMaxStep)) {
    return failure("a number out of range in 'steps'");
  }
  StepRecord step;
  step.step = static_cast<std::uint32_t>(row[0]);
  step.phase = row[1] == 0 ? "prefill" : "decode";
  step.sequences = static_cast<std::uint32_t>(row[2]);
  for (std::size_t c = 0; c < kCauses; ++c) step.bytes.bytes[c] = static_cast<std::uint64_t>(row[3 + c]);
  return step;
}

}  // namespace kvroof
