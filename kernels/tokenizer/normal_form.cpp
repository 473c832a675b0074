#include "kernels/tokenizer/normal_form.hpp"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "kernels/tokenizer/unicode.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

utf8proc_option_t options_of(NormalForm form) {
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}

void append_normalized(std::string_view text, NormalForm form, std::string& out) {
  if (text.empty()) return;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length < 0) throw Error(fmt::format("normalising {} bytes of text: {}", text.size(), utf8proc_errmsg(length)));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
}

// Appends a stretch of text that may change; characters that came late are borders that nothing crosses.
void append_stretch(std::string_view text, NormalForm form, std::string& out) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Sequence c = read_utf8(text, at);
    if (is_late_in_normal_forms(c.code_point)) {
      append_normalized(text.substr(begin, at - begin), form, out);
      out.append(text, at, c.length);
      begin = at + c.length;
    }
    at += c.length;
  }
  append_normalized(text.substr(begin), form, out);
}

// Bytes below this one begin no character that a form changes or joins to the one before it.
unsigned char first_lead_that_changes(NormalForm form) {
  constexpr unsigned char kLeadOfFirstMark = 0xCC;  // U+0300
  return form == NormalForm::kNfc ? kLeadOfFirstMark : 0x80;
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  const unsigned char limit = first_lead_that_changes(form);
  const auto may_change = [&](std::size_t i) { return static_cast<unsigned char>(text[i]) >= limit; };
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!may_change(at)) continue;
    // The character before may take a mark.
    std::size_t begin = at;
    while (begin > done && (static_cast<unsigned char>(text[--begin]) & 0xC0U) == 0x80) {
    }
    std::size_t end = at;
    while (end < text.size() && may_change(end)) end += read_utf8(text, end).length;
    out.append(text, done, begin - done);
    append_stretch(text.substr(begin, end - begin), form, out);
    done = end;
    at = end - 1;
  }
  return out.append(text.substr(done));
}

std::string to_lower_case(std::string_view text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one character whose lower case is two: i and U+0307
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Sequence c = read_utf8(text, at);
    if (c.code_point == kCapitalIWithDot) {
      out += "i\u0307";
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point))), out);
    }
    at += c.length;
  }
  return out;
}

}  // namespace kvroof
