#include "sim/core/text.hpp"

#include <cstdint>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

TEST_CASE("a number is the whole of a text: blanks, letters, a plus sign, nothing, and what does not fit are none") {
  CHECK(parse_number<std::uint32_t>("4294967295") == 4294967295U);
  CHECK(parse_number<double>("-1.5e3") == -1500);
  for (const char* const none : {"", " 1", "1 ", "+1", "-1", "1x", "4294967296", "1.0"}) {
    CAPTURE(none);
    CHECK_FALSE(parse_number<std::uint32_t>(none));
  }
}

TEST_CASE("a decimal has digits and at most one point") {
  CHECK(parse_decimal("0.25") == 0.25);
  CHECK(parse_decimal("12") == 12);
  for (const char* const none : {"", ".", "1.2.3", "-1", "1e3", "nan", "inf", "0x10"}) {
    CAPTURE(none);
    CHECK_FALSE(parse_decimal(none));
  }
}

TEST_CASE("a count may be one of k or m, and has a point only where the whole has none") {
  const std::pair<const char*, std::uint64_t> counts[] = {
      {"0", 0},           {"4k", 4096},     {"4K", 4096},       {"0.5k", 512},
      {"1.5k", 1536},     {"1m", 1048576},  {"0.5M", 524288},   {"0.25m", 262144},
      {"18446744073709551615", 18446744073709551615U}};
  for (const auto& [text, count] : counts) {
    CAPTURE(text);
    CHECK(parse_count(text) == count);
  }
  for (const char* const none :
       {"", "k", "m", "0.3k", "1.5", "4kk", "4 k", "-1k", "1e3k", "4g", "99999999999999999m"}) {
    CAPTURE(none);
    CHECK_FALSE(parse_count(none));
  }
}

TEST_CASE("letters of ASCII become small, other bytes stay") { CHECK(lower_case("H100-Größe") == "h100-größe"); }

TEST_CASE("white space goes at both ends alone") {
  CHECK(trimmed(" \t a b\r\n") == "a b");
  CHECK(trimmed(" \n").empty());
  CHECK(trimmed("").empty());
}

TEST_CASE("a text has one part more than separators, empty ones among them") {
  CHECK(split("a::b:", ':') == std::vector<std::string_view>{"a", "", "b", ""});
  CHECK(split("", ':') == std::vector<std::string_view>{""});
}

TEST_CASE("a message shows the first 40 bytes of what was given") {
  CHECK(shown(std::string_view("0123456789012345678901234567890123456789x")) ==
        "0123456789012345678901234567890123456789");
  CHECK(shown("short") == "short");
}

}  // namespace
}  // namespace kvroof
