#include "traces/gzip_stream.hpp"

#include <zlib.h>

namespace kvroof {
namespace {

constexpr unsigned kGzipBlock = 1U << 18;

}  // namespace

struct GzipStream::File {
  gzFile handle = nullptr;
  ~File() {
    if (handle != nullptr) gzclose_r(handle);
  }
};

Result<std::unique_ptr<GzipStream>> GzipStream::open(const std::filesystem::path& file) {
  std::unique_ptr<GzipStream> stream(new GzipStream);
  stream->file_ = std::make_unique<File>();
  stream->file_->handle = gzopen(file.c_str(), "rb");
  if (stream->file_->handle == nullptr) return failure("it cannot be opened");
  gzbuffer(stream->file_->handle, kGzipBlock);
  stream->buffer_.resize(kGzipBlock);
  return stream;
}

GzipStream::~GzipStream() = default;

std::uint64_t GzipStream::position() const { return read_ - static_cast<std::uint64_t>(egptr() - gptr()); }

GzipStream::int_type GzipStream::underflow() {
  if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
  std::size_t size = held_.copy(buffer_.data(), held_.size()), done = 0;
  while (done == 0 && !ended_) {
    size += read_to(buffer_.data() + size, buffer_.size() - size);
    done = numbers_.clean(std::span(buffer_.data(), size), ended_);
  }
  held_.assign(buffer_.data() + done, size - done);
  read_ += done;
  setg(buffer_.data(), buffer_.data(), buffer_.data() + done);
  return done == 0 ? traits_type::eof() : traits_type::to_int_type(*gptr());
}

// 0 where the file ends, or there is a problem.
std::size_t GzipStream::read_to(char* to, std::size_t most) {
  const bool too_long = position() - marked_ > kLimit;
  const int got = too_long ? 0 : gzread(file_->handle, to, static_cast<unsigned>(most));
  if (got > 0) return static_cast<std::size_t>(got);
  ended_ = true;
  int code = Z_OK;
  const char* why = gzerror(file_->handle, &code);
  if (too_long) {
    problem_ = failure("a value before byte {} is longer than {} MiB", position(), kLimit >> 20U);
  } else if (code != Z_OK && code != Z_STREAM_END) {
    problem_ = failure("the gzip file is damaged after {} bytes of text ({})", position(), why);
  }
  return 0;
}

}  // namespace kvroof
