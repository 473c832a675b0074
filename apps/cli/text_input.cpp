#include "apps/cli/text_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "kernels/tokenizer/unicode.hpp"
#include "sim/core/files.hpp"

namespace kvroof {
namespace {

// Of the first byte that no text has; the text's size when it is one. A NUL is valid UTF-8 and may stand between
// documents; where more than one byte of a hundred is one, they are of UTF-16 or of another format.
std::size_t first_bad_byte(std::string_view text) {
  const auto nuls = static_cast<std::size_t>(std::ranges::count(text, '\0'));
  const bool separators = nuls <= text.size() / 100;
  std::size_t at = 0;
  while (at < text.size() && (separators || text[at] != '\0')) {
    const Utf8Sequence next = read_utf8(text, at);
    if (next.kind != Utf8Sequence::Kind::kValid) break;
    at += next.length;
  }
  return at;
}

}  // namespace

void require_text(const std::string& name, std::string_view text) {
  if (text.starts_with("\x1f\x8b")) {
    throw usage_error(fmt::format("{}: expected a text, found bytes 0 and 1 of gzip; decompress it (gunzip)", name));
  }
  const std::size_t bad = first_bad_byte(text);
  if (bad == text.size()) return;
  throw usage_error(fmt::format("{}: expected a text in UTF-8, found the byte 0x{:02x} at offset {}; convert it "
                                "(iconv) or give another one",
                                name, static_cast<unsigned char>(text[bad]), bad));
}

std::string text_input(const std::string& option, const std::string& path, std::uint64_t limit) {
  const std::string name = fmt::format("--{} {}", option, path);
  std::string text = read_input(path, limit).or_throw(name, ExitCode::kUsage);
  require_text(name, text);
  return text;
}

}  // namespace kvroof
