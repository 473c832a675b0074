#include "sim/model/gguf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "sim/core/byte_reader.hpp"
#include "sim/core/checked.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kLongestKey = 65535;
constexpr std::uint32_t kMostDims = 4;
constexpr std::uint64_t kMostListedIntegers = 1U << 16;
constexpr std::uint64_t kMostAlignment = 1U << 16;

// Types of metadata values.
enum ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kList,
  kU64,
  kI64,
  kF64,
  kValueTypes
};
constexpr std::array<std::uint32_t, kValueTypes> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// ggml's types, their block sizes and bytes of a block (ggml.h, gguf-py's GGML_QUANT_SIZES).
constexpr std::array<GgufType, 34> kTypes = {
    {{0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},      {3, "q4_1", 32, 20},
     {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},      {8, "q8_0", 32, 34},      {9, "q8_1", 32, 40},
     {10, "q2_K", 256, 84},    {11, "q3_K", 256, 110},   {12, "q4_K", 256, 144},   {13, "q5_K", 256, 176},
     {14, "q6_K", 256, 210},   {15, "q8_K", 256, 292},   {16, "iq2_xxs", 256, 66}, {17, "iq2_xs", 256, 74},
     {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},   {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},
     {22, "iq2_s", 256, 82},   {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
     {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},        {29, "iq1_m", 256, 56},
     {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},   {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},
     {40, "nvfp4", 64, 36},    {41, "q1_0", 128, 18}}};

std::string printable(std::string_view text) {
  std::string safe;
  for (const char c : text.substr(0, 60)) safe += c >= ' ' && c <= '~' ? c : '?';
  return safe;
}

class Parser {
 public:
  Parser(std::span<const std::byte> head, std::uint64_t file_size)
      : reader_(head), whole_(head.size() >= file_size), file_size_(file_size) {}

  Result<std::optional<GgufHeader>> parse() {
    std::uint64_t tensors = 0, values = 0;
    read_start(tensors, values);
    for (std::uint64_t i = 0; i < values && going_on(); ++i) read_value();
    const std::uint64_t alignment = going_on() ? read_alignment() : 32;
    for (std::uint64_t i = 0; i < tensors && going_on(); ++i) read_tensor(alignment);
    if (problem_.empty() && !reader_.ran_out()) check_data(alignment);
    if (!problem_.empty()) return Failure{problem_};
    if (reader_.ran_out() && !whole_) return std::optional<GgufHeader>();
    if (reader_.ran_out()) return failure("the file ends within its header");
    return std::optional(std::move(header_));
  }

 private:
  [[nodiscard]] bool going_on() const { return problem_.empty() && !reader_.ran_out(); }

  template <class... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args) {
    if (problem_.empty()) problem_ = fmt::format(text, std::forward<Args>(args)...);
  }

  void read_start(std::uint64_t& tensors, std::uint64_t& values) {
    const auto magic = reader_.read<std::uint32_t>();
    header_.version = reader_.read<std::uint32_t>();
    if (reader_.ran_out()) return;
    if (magic != kMagic) return fail("not a GGUF file: it does not begin with 'GGUF'");
    if (header_.version != 0 && (header_.version & 0xffffU) == 0)
      return fail("a big-endian GGUF file, which is not supported");
    if (header_.version != 2 && header_.version != 3) {
      return fail("GGUF version {} is not supported, only 2 and 3", header_.version);
    }
    tensors = reader_.read<std::uint64_t>();
    values = reader_.read<std::uint64_t>();
    // A tensor takes 24 bytes at least, a value 13.
    if (tensors > file_size_ / 24) fail("{} tensors cannot be in a file of {} bytes", tensors, file_size_);
    if (values > file_size_ / 13) fail("{} metadata values cannot be in a file of {} bytes", values, file_size_);
  }

  // `count` items of `bytes` each fit behind the current position.
  bool fits(std::uint64_t count, std::uint64_t bytes) const {
    const auto size = checked_mul(count, bytes);
    return size && *size <= file_size_ - std::min(file_size_, reader_.position());
  }

  std::string_view read_text(std::string_view what) {
    const auto length = reader_.read<std::uint64_t>();
    if (!fits(length, 1)) {
      fail("{}: a text of {} bytes goes beyond the end of the file", what, length);
      return {};
    }
    return reader_.text(length);
  }

  std::string read_name(std::string_view what) {
    const auto name = read_text(what);
    if (going_on() && (name.empty() || name.size() > kLongestKey)) {
      fail("{} of {} bytes, expected 1 to {}", what, name.size(), kLongestKey);
    }
    return std::string(name);
  }

  void read_value() {
    std::string key = read_name("a metadata key");
    const auto type = reader_.read<std::uint32_t>();
    if (!going_on()) return;
    if (type >= kValueTypes) return fail("'{}' has the unknown value type {}", printable(key), type);
    GgufValue value = type == kList ? GgufValue(read_list(key)) : read_scalar(type, key);
    const std::string name = printable(key);
    if (going_on() && !header_.values.emplace(std::move(key), std::move(value)).second) {
      fail("the metadata key '{}' occurs twice", name);
    }
  }

  GgufValue read_scalar(std::uint32_t type, std::string_view key) {
    switch (type) {
      case kU8:
        return std::uint64_t{reader_.read<std::uint8_t>()};
      case kU16:
        return std::uint64_t{reader_.read<std::uint16_t>()};
      case kU32:
        return std::uint64_t{reader_.read<std::uint32_t>()};
      case kU64:
        return reader_.read<std::uint64_t>();
      case kF32:
        return static_cast<double>(reader_.read<float>());
      case kF64:
        return reader_.read<double>();
      case kString:
        return std::string(read_text(fmt::format("'{}'", printable(key))));
      case kBool: {
        const auto byte = reader_.read<std::uint8_t>();
        if (byte > 1) fail("'{}' is {}, expected 0 or 1", printable(key), byte);
        return byte == 1;
      }
      default:
        return read_signed(type);
    }
  }

  std::int64_t read_signed(std::uint32_t type) {
    switch (type) {
      case kI8:
        return reader_.read<std::int8_t>();
      case kI16:
        return reader_.read<std::int16_t>();
      case kI32:
        return reader_.read<std::int32_t>();
      default:
        return reader_.read<std::int64_t>();
    }
  }

  GgufList read_list(std::string_view key) {
    const auto type = reader_.read<std::uint32_t>();
    GgufList list;
    list.count = reader_.read<std::uint64_t>();
    if (!going_on()) return list;
    if (type >= kValueTypes || type == kList) {
      fail("'{}' is a list of the unknown value type {}", printable(key), type);
      return list;
    }
    if (!fits(list.count, type == kString ? 8 : kValueBytes[type])) {
      fail("'{}': a list of {} values goes beyond the end of the file", printable(key), list.count);
      return list;
    }
    const bool integer = type <= kI32 || type == kBool || type == kU64 || type == kI64;
    if (type == kString) {
      for (std::uint64_t i = 0; i < list.count && going_on(); ++i) read_text(fmt::format("'{}'", printable(key)));
    } else if (integer && list.count <= kMostListedIntegers) {
      for (std::uint64_t i = 0; i < list.count && going_on(); ++i) list.integers.push_back(read_listed(type));
    } else {
      reader_.skip(list.count * kValueBytes[type]);
    }
    return list;
  }

  std::int64_t read_listed(std::uint32_t type) {
    switch (type) {
      case kU8:
      case kBool:
        return reader_.read<std::uint8_t>();
      case kU16:
        return reader_.read<std::uint16_t>();
      case kU32:
        return reader_.read<std::uint32_t>();
      default:
        return read_signed(type);  // u64 beyond 2^63 becomes negative, which no size may be
    }
  }

  std::uint64_t read_alignment() {
    const auto found = header_.values.find("general.alignment");
    if (found == header_.values.end()) return 32;
    const auto* value = std::get_if<std::uint64_t>(&found->second);
    if (value == nullptr || !std::has_single_bit(*value) || *value > kMostAlignment) {
      fail("general.alignment must be a power of two of at most {}", kMostAlignment);
      return 32;
    }
    return *value;
  }

  void read_tensor(std::uint64_t alignment) {
    GgufTensor tensor;
    tensor.name = read_name("a tensor's name");
    const auto dims = reader_.read<std::uint32_t>();
    if (!going_on()) return;
    const std::string name = printable(tensor.name);
    if (dims > kMostDims) return fail("tensor '{}' has {} dimensions, expected at most {}", name, dims, kMostDims);
    for (std::uint32_t i = 0; i < dims; ++i) tensor.dims.push_back(reader_.read<std::uint64_t>());
    const auto type = reader_.read<std::uint32_t>();
    tensor.offset = reader_.read<std::uint64_t>();
    if (!going_on()) return;
    const auto* known = std::find_if(kTypes.begin(), kTypes.end(), [&](const GgufType& t) { return t.id == type; });
    if (known == kTypes.end()) return fail("tensor '{}' has the type {}, which is not known here", name, type);
    tensor.type = known;
    if (!names_.insert(tensor.name).second) return fail("the tensor '{}' occurs twice", name);
    if (tensor.offset % alignment != 0) {
      return fail("tensor '{}' begins at {}, not a multiple of {}", name, tensor.offset, alignment);
    }
    set_sizes(tensor, name);
    header_.tensors.push_back(std::move(tensor));
  }

  void set_sizes(GgufTensor& tensor, const std::string& name) {
    const auto elements = checked_product(tensor.dims);
    const std::uint64_t row = tensor.dims.empty() ? 1 : tensor.dims[0];
    if (!elements || *elements == 0) return fail("tensor '{}' has an impossible shape", name);
    if (row % tensor.type->block != 0) {
      return fail("tensor '{}': rows of {} do not fill blocks of {} ({})", name, row, tensor.type->block,
                  tensor.type->name);
    }
    const auto bytes = checked_mul(*elements / tensor.type->block, tensor.type->bytes);
    if (!bytes || *bytes > file_size_) return fail("tensor '{}' is larger than the file", name);
    tensor.elements = *elements;
    tensor.bytes = *bytes;
  }

  // The data begin at the next multiple of the alignment.
  void check_data(std::uint64_t alignment) {
    const std::uint64_t begin = (reader_.position() + alignment - 1) / alignment * alignment;
    const std::uint64_t size = file_size_ - std::min(begin, file_size_);
    std::vector<const GgufTensor*> in_order;
    for (const GgufTensor& tensor : header_.tensors) in_order.push_back(&tensor);
    std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    std::uint64_t end = 0;
    for (const GgufTensor* tensor : in_order) {
      if (tensor->offset < end) return fail("tensor '{}' overlaps the one before it", printable(tensor->name));
      if (tensor->offset > size || tensor->bytes > size - tensor->offset) {
        return fail("tensor '{}' ends outside the file, which may be cut off", printable(tensor->name));
      }
      end = tensor->offset + tensor->bytes;
    }
  }

  ByteReader reader_;
  bool whole_;
  std::uint64_t file_size_;
  GgufHeader header_;
  std::set<std::string> names_;
  std::string problem_;
};

}  // namespace

const GgufTensor* GgufHeader::find(std::string_view tensor) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const GgufTensor& t) { return t.name == tensor; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<std::optional<GgufHeader>> parse_gguf_header(std::span<const std::byte> head, std::uint64_t file_size) {
  return Parser(head, file_size).parse();
}

}  // namespace kvroof
