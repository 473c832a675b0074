// ByteReader: little-endian values from foreign bytes; what is not there reads as 0 and is remembered.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace kvroof {

// Never reads outside its bytes. After the first read that asks for more than is left, ran_out() holds, nothing more is
// consumed, and all further reads give 0 or nothing.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  T read() {
    static_assert(std::endian::native == std::endian::little);
    T value{};
    if (take(sizeof(T))) std::memcpy(&value, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
  // Valid as long as the bytes are.
  std::string_view text(std::uint64_t length) {
    if (!take(length)) return {};
    return {reinterpret_cast<const char*>(bytes_.data()) + at_ - length, static_cast<std::size_t>(length)};
  }
  void skip(std::uint64_t length) { take(length); }

  [[nodiscard]] bool ran_out() const { return ran_out_; }
  [[nodiscard]] std::uint64_t position() const { return at_; }

 private:
  bool take(std::uint64_t length) {
    if (ran_out_ || length > bytes_.size() - at_) {
      ran_out_ = true;
      return false;
    }
    at_ += static_cast<std::size_t>(length);
    return true;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool ran_out_ = false;
};

}  // namespace kvroof
