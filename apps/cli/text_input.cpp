#include "apps/cli/text_input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "kernels/tokenizer/unicode.hpp"
#include "traces/file_io.hpp"

namespace kvroof {
namespace {

// What has no size: it is read until its writer closes it.
bool is_stream(const std::string& path) {
  struct stat status {};
  return path == "-" || (::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode));
}

Result<std::string> read_stream(const std::string& path, std::uint64_t limit) {
  const int fd = path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failure("cannot open: {}", std::strerror(errno));
  constexpr std::size_t kBlock = std::size_t{1} << 16;
  std::string text;
  int error = 0;
  for (bool more = true; more && text.size() <= limit;) {
    const std::size_t before = text.size();
    text.resize(before + kBlock);
    const ssize_t n = ::read(fd, text.data() + before, kBlock);
    error = n < 0 ? errno : 0;
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    more = n > 0 || error == EINTR;
  }
  ::close(fd);
  if (error != 0) return failure("cannot read: {}", std::strerror(error));
  if (text.size() > limit) return failure("more than {} bytes, which are the most that is read", limit);
  return text;
}

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

std::string text_input(const std::string& option, const std::string& path, std::uint64_t limit) {
  const std::string name = fmt::format("--{} {}", option, path);
  std::string text =
      (is_stream(path) ? read_stream(path, limit) : read_text_file(path, limit)).or_throw(name, ExitCode::kUsage);
  if (text.starts_with("\x1f\x8b")) {
    throw usage_error(fmt::format("{}: expected a text, found bytes 0 and 1 of gzip; decompress it (gunzip)", name));
  }
  const std::size_t bad = first_bad_byte(text);
  if (bad < text.size()) {
    throw usage_error(fmt::format("{}: expected a text in UTF-8, found the byte 0x{:02x} at offset {}; convert it "
                                  "(iconv) or give another file",
                                  name, static_cast<unsigned char>(text[bad]), bad));
  }
  return text;
}

}  // namespace kvroof
