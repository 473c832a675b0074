// XXH3-64 checksums of bytes and of files, and how they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/core/error.hpp"
#include "sim/core/files.hpp"

namespace kvroof {

// XXH3-64 with seed 0, fed in pieces.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t xxh3(std::string_view bytes);

// The checksum of a file's first `bytes` bytes, read in blocks.
Result<std::uint64_t> file_xxh3(const OpenFile& file, std::uint64_t bytes);

// 16 lower-case hexadecimal digits, and back.
std::string to_hex(std::uint64_t value);
std::optional<std::uint64_t> from_hex(std::string_view text);

}  // namespace kvroof
