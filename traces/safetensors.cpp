// Validation of safetensors headers. The JSON is read by events, because a document tree would already have
// dropped duplicate keys and allocated whatever the file asks for.
#include "traces/safetensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>

#include "sim/core/checked.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kMaxTensors = 1'000'000;
constexpr std::size_t kMaxRank = 64;
constexpr std::uint64_t kMaxInteger = std::uint64_t{1} << 53;  // what every JSON reader holds exactly

// A tensor as the header states it, before it is checked against the file.
struct Entry {
  std::string name;
  bool has_type = false;  // the three fields: seen
  bool has_shape = false;
  bool has_offsets = false;
  std::optional<DType> type;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
};

// Receives the events of the JSON parser; returning false stops it at once, so nesting costs nothing.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a truth value"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a number that is not a whole one"); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kNumbers) return refuse("a number");
    if (value > kMaxInteger) return stop("tensor '{}': {} is {}, above 2^53", entries.back().name, field_, value);
    if (numbers_->size() == kMaxRank) {
      return stop("tensor '{}': more than {} numbers in {}", entries.back().name, kMaxRank, field_);
    }
    numbers_->push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      metadata[field_] = std::move(value);
      return true;
    }
    if (state_ != State::kTensor || field_ != "dtype") return refuse("a string");
    Entry& entry = entries.back();
    for (int t = 0; t <= static_cast<int>(DType::kF8E4M3); ++t) {
      if (safetensors_name_of(static_cast<DType>(t)) == value) entry.type = static_cast<DType>(t);
    }
    return entry.type ? true : stop("tensor '{}': element type '{}' is not supported", entry.name, value);
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kStart: state_ = State::kTensors; return true;
      case State::kTensors:
        if (field_ == "__metadata__") {
          state_ = State::kMetadata;
        } else if (entries.size() == kMaxTensors) {
          return stop("more than {} tensors", kMaxTensors);
        } else {
          entries.emplace_back().name = field_;
          state_ = State::kTensor;
        }
        field_.clear();
        return true;
      default: return refuse("an object");
    }
  }

  bool key(string_t& name) override {
    switch (state_) {
      case State::kTensors:
        if (!names_.insert(name).second) return stop("the name '{}' occurs twice", name);
        break;
      case State::kMetadata:
        if (metadata.contains(name)) return stop("__metadata__: the key '{}' occurs twice", name);
        metadata[name];
        break;
      default:
        if (!new_field(name)) return false;
    }
    field_ = name;
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor) {
      const Entry& e = entries.back();
      if (!e.has_type || !e.has_shape || !e.has_offsets) {
        return stop("tensor '{}': dtype, shape or data_offsets is missing", e.name);
      }
    }
    state_ = state_ == State::kTensors ? State::kEnd : State::kTensors;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::kTensor || (field_ != "shape" && field_ != "data_offsets")) return refuse("an array");
    numbers_ = field_ == "shape" ? &entries.back().shape : &entries.back().offsets;
    state_ = State::kNumbers;
    return true;
  }

  bool end_array() override {
    Entry& e = entries.back();
    if (field_ == "data_offsets" && e.offsets.size() != 2) {
      return stop("tensor '{}': data_offsets holds {} numbers, expected 2", e.name, e.offsets.size());
    }
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return stop("the header is not valid JSON near its byte {}", position);
  }

 private:
  enum class State { kStart, kTensors, kMetadata, kTensor, kNumbers, kEnd };

  template <class... Args>
  bool stop(fmt::format_string<Args...> text, Args&&... args) {
    problem = fmt::format(text, std::forward<Args>(args)...);
    return false;
  }

  bool refuse(std::string_view found) {
    switch (state_) {
      case State::kStart:
      case State::kEnd: return stop("the header is {}, expected an object", found);
      case State::kTensors: return stop("'{}' is {}, expected an object", field_, found);
      case State::kMetadata: return stop("__metadata__: '{}' is {}, expected a string", field_, found);
      default: return stop("tensor '{}': {} holds {}", entries.back().name, field_, found);
    }
  }

  // Inside a tensor: each of the three fields exactly once, and no other.
  bool new_field(const std::string& name) {
    Entry& e = entries.back();
    bool* seen = nullptr;
    if (name == "dtype") seen = &e.has_type;
    if (name == "shape") seen = &e.has_shape;
    if (name == "data_offsets") seen = &e.has_offsets;
    if (seen == nullptr) return stop("tensor '{}': unknown field '{}'", e.name, name);
    if (*seen) return stop("tensor '{}': {} occurs twice", e.name, name);
    *seen = true;
    return true;
  }

  State state_ = State::kStart;
  std::string field_;  // the key read last at the present level
  std::vector<std::uint64_t>* numbers_ = nullptr;
  std::unordered_set<std::string> names_;
};

// One entry against the data area of `data_bytes` bytes; offsets first, so that an empty or wrapped shape hides
// nothing.
Result<TensorInfo> check_entry(Entry& entry, std::uint64_t data_bytes) {
  const std::uint64_t begin = entry.offsets[0];
  const std::uint64_t end = entry.offsets[1];
  if (begin > end || end > data_bytes) {
    return failure("tensor '{}': data_offsets [{}, {}] lie outside the {} bytes of data", entry.name, begin, end,
                   data_bytes);
  }
  const auto elements = checked_product(entry.shape);
  const auto bytes = elements ? checked_mul(*elements, size_of(*entry.type)) : std::nullopt;
  if (!bytes) return failure("tensor '{}': the size of its shape overflows", entry.name);
  if (*bytes != end - begin) {
    return failure("tensor '{}': shape and type need {} bytes, data_offsets give {}", entry.name, *bytes, end - begin);
  }
  TensorInfo info{std::move(entry.name), *entry.type, std::move(entry.shape), begin, *bytes};
  return info;
}

// The tensors must tile the data area: no holes, no overlaps, nothing behind the last.
std::optional<Failure> check_tiling(const std::vector<TensorInfo>& sorted, std::uint64_t data_bytes) {
  std::uint64_t expected = 0;
  for (const TensorInfo& t : sorted) {
    if (t.offset != expected) {
      return failure("tensor '{}' starts at byte {} of the data, expected {}: tensors must not {}", t.name, t.offset,
                     expected, t.offset < expected ? "overlap" : "leave holes");
    }
    expected += t.bytes;
  }
  if (expected != data_bytes) return failure("{} bytes of data belong to no tensor", data_bytes - expected);
  return std::nullopt;
}

}  // namespace

std::uint64_t TensorInfo::elements() const { return bytes / size_of(type); }

const TensorInfo* SafetensorsHeader::find(std::string_view name) const {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& t) { return t.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

Result<std::uint64_t> safetensors_header_size(std::span<const std::byte> head, std::uint64_t file_size) {
  if (file_size < 8 || head.size() < 8) return failure("{} bytes are too few for a safetensors file", file_size);
  std::uint64_t size = 0;
  for (std::size_t i = 8; i-- > 0;) size = size << 8 | static_cast<std::uint64_t>(head[i]);
  if (size > kMaxHeader) return failure("a header of {} bytes; at most {} are allowed", size, kMaxHeader);
  if (size > file_size - 8) return failure("a header of {} bytes does not fit into a file of {}", size, file_size);
  return size;
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head, std::uint64_t file_size) {
  const Result<std::uint64_t> size = safetensors_header_size(head, file_size);
  if (!size) return failure("{}", size.error());
  if (head.size() < 8 + size.value()) return failure("the file ends inside the header");
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + 8, static_cast<std::size_t>(size.value()));
  if (!text.starts_with('{')) return failure("the header does not start with '{{'");
  if (has_zero_byte(text)) return failure("the header holds a zero byte");

  HeaderEvents events;
  if (!nlohmann::json::sax_parse(text, &events)) return Failure{events.problem};

  const std::uint64_t data_start = 8 + size.value();
  const std::uint64_t data_bytes = file_size - data_start;
  SafetensorsHeader header;
  header.tensors.reserve(events.entries.size());
  for (Entry& entry : events.entries) {
    Result<TensorInfo> info = check_entry(entry, data_bytes);
    if (!info) return failure("{}", info.error());
    header.tensors.push_back(std::move(info).value());
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  if (auto problem = check_tiling(header.tensors, data_bytes)) return *problem;
  for (TensorInfo& t : header.tensors) t.offset += data_start;
  header.metadata = std::move(events.metadata);
  return header;
}

}  // namespace kvroof
