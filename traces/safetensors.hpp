// safetensors files: a strict parser of headers (validate everything, then allocate) and a deterministic writer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/dtype.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

struct TensorInfo {
  std::string name;
  DType type = DType::kF32;
  std::vector<std::uint64_t> shape;  // row-major; empty for a scalar
  std::uint64_t offset = 0;          // of the first byte, from the start of the file
  std::uint64_t bytes = 0;
  [[nodiscard]] std::uint64_t elements() const;
};

// What a header says; every rule of the format has been checked against the size of the file.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
};

// N of a file of `file_size` bytes, from its first 8 bytes. Refuses N beyond the file or 100,000,000.
Result<std::uint64_t> safetensors_header_size(std::span<const std::byte> head, std::uint64_t file_size);

// Parses the first bytes of a file of `file_size` bytes. `head` holds at least 8 + N bytes or all of a shorter file.
// Refuses, with one sentence: N beyond the file or 100,000,000; anything but an object of tensors; duplicate names;
// unknown types; shapes whose size wraps or differs from the offsets; holes, overlaps and trailing bytes.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head, std::uint64_t file_size);

// An open file. Reads by pread: a file that shrinks after opening gives an error, not a signal.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // Reads `to.size()` bytes of the tensor from byte `from` of it on. Throws Error when the file is shorter than it was.
  void read(const TensorInfo& tensor, std::uint64_t from, std::span<std::byte> to) const;
  // A whole tensor as floats (f32, f16 or bf16 in the file).
  [[nodiscard]] std::vector<float> read_floats(const TensorInfo& tensor) const;
  // A whole tensor as int64 (i64, i32, u32, u16 or u8 in the file).
  [[nodiscard]] std::vector<std::int64_t> read_integers(const TensorInfo& tensor) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const int> descriptor_;
  SafetensorsHeader header_;
};

// A tensor to be written; `data` stays valid until the write returns.
struct TensorToWrite {
  std::string name;
  DType type = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> data;
};

// The data of the tensor `checksum` (SafetensorsWriting), which segment_checksums() compares.
std::array<std::byte, 8> checksum_bytes(std::uint64_t digest);

// The first bytes of a file of these tensors, for whoever writes their data after it: here they may be empty.
std::string safetensors_head(std::span<const TensorToWrite> tensors,
                             const std::map<std::string, std::string>& metadata);

struct SafetensorsWriting {
  bool self_checksum = false;  // a last tensor `checksum`, U8 [8], holds the XXH3-64 of everything before it
  bool durable = true;         // returns when the disk has it; false: AtomicFile::publish
};

// Writes `path` under a temporary name and renames it: the file appears whole or not at all. The same input gives the
// same bytes. Throws Error (disk full, read-only, …) after removing the temporary file. Returns the XXH3-64 of the
// file.
std::uint64_t write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                                const std::map<std::string, std::string>& metadata, SafetensorsWriting how = {});

}  // namespace kvroof
