// "1 token", "2 tokens": numbers of things in messages.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace kvroof {

// So many of what is called `one`, in the plural with an s where it is not one.
inline std::string counted(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

}  // namespace kvroof
