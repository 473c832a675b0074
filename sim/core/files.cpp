#include "sim/core/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

namespace kvroof {
namespace {

std::string reason_of(int error) { return std::generic_category().message(error); }

Error write_error(const std::filesystem::path& path, int error) {
  return Error(fmt::format("{}: cannot be written: {}", path.string(), reason_of(error)));
}

// What has no size: it is read until its writers close it.
bool is_stream(const std::filesystem::path& path) {
  std::error_code ignored;
  return path == "-" || std::filesystem::is_fifo(path, ignored);
}

Result<std::string> read_stream(const std::filesystem::path& path, std::uint64_t limit) {
  const int fd = path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failure("cannot open: {}", reason_of(errno));
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
  if (error != 0) return failure("cannot read: {}", reason_of(error));
  if (text.size() > limit) return failure("more than {} bytes, which are the most that is read", limit);
  return text;
}

// Writes all bytes; returns 0 or errno.
int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

Result<OpenFile> open_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failure("cannot open: {}", reason_of(errno));
  OpenFile file;
  file.descriptor = std::shared_ptr<const int>(new int(fd), [](const int* p) {
    ::close(*p);
    delete p;
  });
  struct stat status{};
  if (::fstat(fd, &status) != 0) return failure("cannot open: {}", reason_of(errno));
  if (S_ISDIR(status.st_mode)) return failure("a folder, expected a file");
  if (!S_ISREG(status.st_mode)) return failure("not a regular file");
  file.size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

std::optional<Failure> read_at(const OpenFile& file, std::uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t n =
        ::pread(*file.descriptor, to.data(), std::min(to.size(), std::size_t{1} << 30), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return failure("cannot read: {}", reason_of(errno));
    }
    if (n == 0) return failure("the file ends at byte {}, {} bytes too early", offset, to.size());
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return std::nullopt;
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
  Result<OpenFile> file = open_file(path);
  if (!file) return failure("{}", file.error());
  const std::uint64_t size = file.value().size;
  if (size > limit) return failure("{} bytes, expected at most {}", size, limit);
  std::string text(size, '\0');
  if (auto problem = read_at(file.value(), 0, std::as_writable_bytes(std::span(text)))) return *problem;
  return text;
}

Result<std::string> read_input(const std::filesystem::path& path, std::uint64_t limit) {
  return is_stream(path) ? read_stream(path, limit) : read_text_file(path, limit);
}

bool is_replaceable(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, ignored);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

std::string temporary_name(const std::filesystem::path& path) {
  if (!is_replaceable(path)) return path.string();
  // Not by the process's number, which another has in a container or on another machine of a network file system.
  return fmt::format("{}.{:08x}.part", path.string(), std::random_device{}());
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), part_(temporary_name(path_)) {
  const int found = part_ == path_ ? O_TRUNC : O_EXCL;  // no chance makes a temporary file two writers'
  descriptor_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | found, 0666);
  if (descriptor_ < 0) throw write_error(path_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  std::error_code ignored;
  if (!part_.empty() && part_ != path_) std::filesystem::remove(part_, ignored);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (const int error = write_all(descriptor_, bytes)) throw write_error(path_, error);
}

void AtomicFile::commit() {
  if (part_ == path_) return publish();  // devices and pipes have nothing to synchronise
  if (::fsync(descriptor_) != 0) throw write_error(path_, errno);
  publish();
  sync_path(path_.has_parent_path() ? path_.parent_path() : ".");
}

void AtomicFile::publish() {
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0 || (part_ != path_ && ::rename(part_.c_str(), path_.c_str()) != 0)) throw write_error(path_, errno);
  part_.clear();
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void append_text(const std::filesystem::path& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) throw write_error(path, errno);
  int error = write_all(fd, std::as_bytes(std::span(text)));
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error != 0) throw write_error(path, error);
}

void sync_path(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw write_error(path, errno);
  // Some file systems cannot synchronise folders and say EINVAL; there is nothing more to be had from them.
  const int error = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  ::close(fd);
  if (error != 0) throw write_error(path, error);
}

}  // namespace kvroof
