// Reading and writing of safetensors files.
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "sim/core/checked.hpp"
#include "sim/core/files.hpp"
#include "traces/checksum.hpp"
#include "traces/safetensors.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kBlockElements = std::size_t{1} << 16;

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

template <class T>
std::int64_t integer_at(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof(T));
  return static_cast<std::int64_t>(value);
}

std::int64_t integer_at(DType type, const std::byte* from) {
  switch (type) {
    case DType::kI64: return integer_at<std::int64_t>(from);
    case DType::kI32: return integer_at<std::int32_t>(from);
    case DType::kU32: return integer_at<std::uint32_t>(from);
    case DType::kU16: return integer_at<std::uint16_t>(from);
    default: return integer_at<std::uint8_t>(from);
  }
}

[[noreturn]] void refuse_type(const std::filesystem::path& path, const TensorInfo& tensor, std::string_view expected) {
  throw Error(fmt::format("{}: tensor '{}' has type {}, expected {}", path.string(), tensor.name,
                          safetensors_name_of(tensor.type), expected));
}

}  // namespace

std::array<std::byte, 8> checksum_bytes(std::uint64_t digest) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(digest >> (8 * i) & 0xff);
  return bytes;
}

// With its length and padding: the data starts at a multiple of 8.
std::string safetensors_head(std::span<const TensorToWrite> tensors,
                             const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::uint64_t at = 0;
  for (const TensorToWrite& t : tensors) {
    const auto elements = checked_product(t.shape);
    const auto bytes = elements ? checked_mul(*elements, size_of(t.type)) : std::nullopt;
    check(bytes && (t.data.empty() || *bytes == t.data.size()), "a tensor is as long as its shape and type say");
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json.size() > 1 ? "," : "",
                        quoted(t.name), safetensors_name_of(t.type), fmt::join(t.shape, ","), at, at + *bytes);
    at += *bytes;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string head(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return head + json;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  Result<OpenFile> opened = open_file(path);
  if (!opened) return failure("{}", opened.error());
  const OpenFile file = std::move(opened).value();
  std::vector<std::byte> head(static_cast<std::size_t>(std::min<std::uint64_t>(8, file.size)));
  if (auto problem = read_at(file, 0, head)) return *problem;
  const Result<std::uint64_t> size = safetensors_header_size(head, file.size);
  if (!size) return failure("{}", size.error());
  head.resize(static_cast<std::size_t>(8 + size.value()));
  if (auto problem = read_at(file, 0, head)) return *problem;
  Result<SafetensorsHeader> header = parse_safetensors_header(head, file.size);
  if (!header) return failure("{}", header.error());
  SafetensorsFile result;
  result.path_ = path;
  result.descriptor_ = file.descriptor;
  result.header_ = std::move(header).value();
  return result;
}

void SafetensorsFile::read(const TensorInfo& tensor, std::uint64_t from, std::span<std::byte> to) const {
  check(from <= tensor.bytes && to.size() <= tensor.bytes - from, "a read stays inside its tensor");
  if (auto problem = read_at(OpenFile{descriptor_, 0}, tensor.offset + from, to)) {
    throw Error(fmt::format("{}: tensor '{}': {}", path_.string(), tensor.name, problem->message));
  }
}

std::vector<float> SafetensorsFile::read_floats(const TensorInfo& tensor) const {
  if (tensor.type != DType::kF32 && tensor.type != DType::kF16 && tensor.type != DType::kBF16) {
    refuse_type(path_, tensor, "F32, F16 or BF16");
  }
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  if (tensor.type == DType::kF32) {
    read(tensor, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  const std::size_t width = size_of(tensor.type);
  std::vector<std::byte> block(std::min(values.size(), kBlockElements) * width);
  for (std::size_t at = 0; at < values.size(); at += kBlockElements) {
    const auto part = std::span(values).subspan(at, std::min(kBlockElements, values.size() - at));
    read(tensor, at * width, std::span(block).first(part.size() * width));
    convert_to_float(tensor.type, block.data(), part);
  }
  return values;
}

std::vector<std::int64_t> SafetensorsFile::read_integers(const TensorInfo& tensor) const {
  const DType t = tensor.type;
  if (t != DType::kI64 && t != DType::kI32 && t != DType::kU32 && t != DType::kU16 && t != DType::kU8) {
    refuse_type(path_, tensor, "I64, I32, U32, U16 or U8");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
  read(tensor, 0, bytes);
  std::vector<std::int64_t> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = integer_at(t, bytes.data() + i * size_of(t));
  return values;
}

std::uint64_t write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                                const std::map<std::string, std::string>& metadata, SafetensorsWriting how) {
  std::array<std::byte, 8> checksum{};
  std::vector<TensorToWrite> all(tensors.begin(), tensors.end());
  for (const TensorToWrite& t : all) {
    check(t.data.size() == checked_product(t.shape).value_or(0) * size_of(t.type), "a tensor's data are all there");
  }
  if (how.self_checksum) all.push_back({"checksum", DType::kU8, {checksum.size()}, checksum});
  const std::string head = safetensors_head(all, metadata);
  AtomicFile file(path);
  Xxh3 hash;
  const auto put = [&](std::span<const std::byte> bytes) {
    hash.update(bytes);
    file.write(bytes);
  };
  put(std::as_bytes(std::span(head)));
  for (const TensorToWrite& t : tensors) put(t.data);
  if (how.self_checksum) {
    checksum = checksum_bytes(hash.digest());
    put(checksum);
  }
  if (how.durable) {
    file.commit();
  } else {
    file.publish();
  }
  return hash.digest();
}

}  // namespace kvroof
