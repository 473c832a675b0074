// Groups of devices that wait for each other, to which prompts come by chance.
#pragma once

#include <array>
#include <cstdint>

namespace kvroof {

// How many of `count` prompts the group with most of them has, expected, where each comes to any of the groups alike:
// exactly of 64 and fewer, else as if the counts of groups were independent (Poisson; within 0.2 % of 200,000 draws).
class FullestGroup {
 public:
  explicit FullestGroup(std::uint32_t groups);
  [[nodiscard]] double expected(std::uint32_t count) const;

 private:
  static constexpr std::uint32_t kFew = 64;

  std::uint32_t groups_;
  std::array<double, kFew + 1> few_{};  // by count
};

}  // namespace kvroof
