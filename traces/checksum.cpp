#include "traces/checksum.hpp"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace kvroof {

struct Xxh3::State {
  XXH3_state_t* state = XXH3_createState();
  State() { check(state != nullptr && XXH3_64bits_reset(state) == XXH_OK, "xxhash gives a state"); }
  ~State() { XXH3_freeState(state); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {}
Xxh3::~Xxh3() = default;
void Xxh3::update(std::span<const std::byte> bytes) { XXH3_64bits_update(state_->state, bytes.data(), bytes.size()); }
std::uint64_t Xxh3::digest() const { return XXH3_64bits_digest(state_->state); }

std::uint64_t xxh3(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Result<std::uint64_t> file_xxh3(const OpenFile& file, std::uint64_t bytes) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, bytes)));
  Xxh3 hash;
  for (std::uint64_t at = 0; at < bytes; at += kBlock) {
    const auto part = std::span(block).first(static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, bytes - at)));
    if (auto problem = read_at(file, at, part)) return *problem;
    hash.update(part);
  }
  return hash.digest();
}

std::string to_hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<std::uint64_t> from_hex(std::string_view text) {
  const auto lower = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != 16 || !std::all_of(text.begin(), text.end(), lower)) return std::nullopt;
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

}  // namespace kvroof
