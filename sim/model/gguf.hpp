// GGUF files (llama.cpp's model format, versions 2 and 3): the header, and the shape and exact weight bytes it implies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/model/stored_format.hpp"

namespace kvroof {

// How a tensor type stores elements: `bytes` for each block of `block` (ggml's table; a float type has blocks of 1).
struct GgufType {
  std::uint32_t id = 0;
  std::string_view name;
  std::uint32_t block = 1;
  std::uint32_t bytes = 0;
};

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // the fastest first: a matrix [out, in] has dims {in, out}
  const GgufType* type = nullptr;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // from the start of the data
};

// A list in the metadata. Integers and truths are kept while there are not too many; of others the count alone.
struct GgufList {
  std::uint64_t count = 0;
  std::vector<std::int64_t> integers;
  friend bool operator==(const GgufList&, const GgufList&) = default;
};

using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, GgufList>;

struct GgufHeader {
  std::uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<GgufTensor> tensors;  // in the order of the file
  [[nodiscard]] const GgufTensor* find(std::string_view tensor) const;
};

// Parses the first bytes of a file of `file_size` bytes; nothing when the header goes on behind `head`. Refuses, in one
// sentence that names key or tensor: other magics, versions and byte orders; lengths and counts beyond the file;
// unknown types; nested lists; doubled names; shapes that wrap or do not fill blocks; tensors that overlap or end
// outside the file.
Result<std::optional<GgufHeader>> parse_gguf_header(std::span<const std::byte> head, std::uint64_t file_size);

struct GgufModel {
  struct TypeBytes {
    std::string_view name;
    std::uint64_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  ModelShape shape;              // weight_type: f32, bf16 or f16 where that holds most bytes, else f16
  bool quantised = false;        // another type holds most bytes
  StoredFormat stored;           // of quantised weights, by the file's own word or the type of most bytes; else empty
  std::uint64_t parameters = 0;  // elements of all tensors but tables of rotary factors and layers that draft tokens
  std::uint64_t bytes = 0;       // of all tensors but those of layers that draft
  std::vector<TypeBytes> types;  // most bytes first
  std::string unknown_windows;   // of layers that slide, where nothing says which do: a sentence; else empty
  // What tells why `parameters` are not those of the shape: the keys of its sizes, and kinds of tensors without one.
  std::vector<std::string> keys, undescribed;
};

// The keys of general.architecture's own name (docs/gguf.md of the ggml project), and which tensors there are. Refuses
// sizes that are missing, impossible or differ between layers, parts of split files by themselves, and files that are
// no decoder-only language model.
Result<GgufModel> gguf_model(const GgufHeader& file);

// Files that a model was split into (llama.cpp's gguf-split writes the key split.count); 1: not split.
std::uint64_t split_count(const GgufHeader& header);

// Reads the header of a file, as far as that is long; of the first part of a split model those of all parts, which lie
// beside it. Throws Error that names the file.
GgufModel load_gguf(const std::filesystem::path& path);

}  // namespace kvroof
