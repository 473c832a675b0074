// Causes of memory traffic, and counters of bytes by cause.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvroof {

enum class Cause : std::uint8_t {
  kWeights,      // weights read: matrices, norms, biases, embedding rows
  kKvRead,       // rows of k and v read by attention
  kKvWrite,      // rows of k and v written when a token is admitted
  kScores,       // policy state read and written
  kCompaction,   // rows read and written when survivors move
  kActivations,  // inputs read and outputs written by every operator
};
inline constexpr std::size_t kCauses = 6;
inline constexpr std::array<std::string_view, kCauses> kCauseNames = {"weights", "kv_read",    "kv_write",
                                                                      "scores",  "compaction", "activations"};

struct ByteCounters {
  std::array<std::uint64_t, kCauses> bytes{};

  [[nodiscard]] std::uint64_t operator[](Cause c) const { return bytes[static_cast<std::size_t>(c)]; }
  void add(Cause c, std::uint64_t n) { bytes[static_cast<std::size_t>(c)] += n; }
  ByteCounters& operator+=(const ByteCounters& other) {
    for (std::size_t i = 0; i < kCauses; ++i) bytes[i] += other.bytes[i];
    return *this;
  }
  [[nodiscard]] std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t b : bytes) sum += b;
    return sum;
  }
  friend bool operator==(const ByteCounters&, const ByteCounters&) = default;
};

}  // namespace kvroof
