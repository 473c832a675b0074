// Remembers the ids of short pieces of text, since words repeat: bounded, and without an allocation for each word.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace kvroof {

// One entry a place: a word takes the place of another with the same hash.
class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 66;  // bytes
  static constexpr std::size_t kMostIds = 15;

  explicit WordCache(std::size_t text_bytes)
      : entries_(std::bit_ceil(std::clamp<std::size_t>(text_bytes / 16, 1, kMostEntries))) {}

  struct Entry {
    std::uint8_t length = 0;  // 0: free
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word{};
    std::array<std::uint32_t, kMostIds> ids{};

    [[nodiscard]] bool holds(std::string_view text) const {
      return length == text.size() && std::memcmp(word.data(), text.data(), length) == 0;
    }
    void store(std::string_view text, std::span<const std::int64_t> of_text) {
      if (of_text.size() > kMostIds) return;
      length = static_cast<std::uint8_t>(text.size());
      count = static_cast<std::uint8_t>(of_text.size());
      std::memcpy(word.data(), text.data(), text.size());
      std::transform(of_text.begin(), of_text.end(), ids.begin(),
                     [](std::int64_t id) { return static_cast<std::uint32_t>(id); });
    }
  };
  static_assert(sizeof(Entry) == 128);

  // The place of a word of 1 … kLongestWord bytes.
  [[nodiscard]] Entry& place_of(std::string_view word) {
    return entries_[std::hash<std::string_view>{}(word) & (entries_.size() - 1)];
  }

 private:
  static constexpr std::size_t kMostEntries = std::size_t{1} << 14;
  std::vector<Entry> entries_;
};

}  // namespace kvroof
