// Categories of the Unicode standard and the boundaries of its well-formed UTF-8.
#include "kernels/tokenizer/unicode.hpp"

#include <string>

#include "tests/catch.hpp"

using kvroof::Category;
using kvroof::category_of;
using kvroof::is_white_space;

TEST_CASE("code points have the general category of the Unicode standard") {
  CHECK(category_of(U'A') == Category::kLu);
  CHECK(category_of(U'ſ') == Category::kLl);
  CHECK(category_of(0x01C5) == Category::kLt);
  CHECK(category_of(0x02B0) == Category::kLm);
  CHECK(category_of(U'中') == Category::kLo);
  CHECK(category_of(0x0301) == Category::kMn);
  CHECK(category_of(U'٣') == Category::kNd);
  CHECK(category_of(U'Ⅷ') == Category::kNl);
  CHECK(category_of(U'½') == Category::kNo);
  CHECK(category_of(U'_') == Category::kPc);
  CHECK(category_of(U'…') == Category::kPo);
  CHECK(category_of(U'€') == Category::kSc);
  CHECK(category_of(U'^') == Category::kSk);
  CHECK(category_of(U'😀') == Category::kSo);
  CHECK(category_of(0x200D) == Category::kCf);
  CHECK(category_of(0xE000) == Category::kCo);
  CHECK(category_of(0x10FFFD) == Category::kCo);
  CHECK(category_of(0x10FFFF) == Category::kCn);
  CHECK(category_of(0x110000) == Category::kCn);
}

TEST_CASE("white space is the property White_Space and nothing else") {
  std::u32string spaces;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (is_white_space(c)) spaces += c;
  }
  CHECK(spaces ==
        U"\t\n\v\f\r \u0085\u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200A"
        U"\u2028\u2029\u202F\u205F\u3000");
}

TEST_CASE("every code point but the surrogates survives UTF-8") {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string bytes;
    kvroof::append_utf8(c, bytes);
    const kvroof::Utf8Sequence s = kvroof::read_utf8(bytes, 0);
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    if ((s.kind == kvroof::Utf8Sequence::Kind::kValid) == surrogate) FAIL("U+" << std::hex << static_cast<unsigned>(c));
    if (!surrogate && (s.code_point != c || s.length != bytes.size())) FAIL(static_cast<unsigned>(c));
  }
}

TEST_CASE("overlong forms, surrogates and bytes above F4 are invalid at their first byte") {
  for (const std::string bytes : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                  "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\x80"}) {
    const kvroof::Utf8Sequence s = kvroof::read_utf8(bytes, 0);
    CHECK(s.kind == kvroof::Utf8Sequence::Kind::kInvalid);
    CHECK(s.length == 1);
  }
}

TEST_CASE("an incomplete sequence is left for later unless the bytes end there for good") {
  std::string out;
  CHECK(kvroof::append_valid_utf8("ab\xE2\x82", false, out) == 2);
  CHECK(out == "ab");
  CHECK(kvroof::append_valid_utf8("\xE2\x82", true, out) == 2);
  CHECK(out == "ab\xEF\xBF\xBD");
}
