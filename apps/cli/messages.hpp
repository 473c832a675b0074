// What is said beside a result.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace kvroof {

// To stderr. That nobody reads it any more is no reason to end: a recording goes on, and is sealed.
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  std::fputs(fmt::format(text, std::forward<Args>(args)...).c_str(), stderr);
}

}  // namespace kvroof
