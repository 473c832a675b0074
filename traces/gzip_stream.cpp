#include "traces/gzip_stream.hpp"

#include <zlib.h>

namespace kvroof {
namespace {

constexpr unsigned kBlock = 1U << 18;

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
  gzbuffer(stream->file_->handle, kBlock);
  stream->buffer_.resize(kBlock);
  return stream;
}

GzipStream::~GzipStream() = default;

std::uint64_t GzipStream::position() const { return read_ - static_cast<std::uint64_t>(egptr() - gptr()); }

GzipStream::int_type GzipStream::underflow() {
  if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
  if (ended_) return traits_type::eof();
  const int got = position() - marked_ > kLimit ? 0 : gzread(file_->handle, buffer_.data(), kBlock);
  if (got <= 0) {
    ended_ = true;
    int code = Z_OK;
    const char* why = gzerror(file_->handle, &code);
    if (position() - marked_ > kLimit) {
      problem_ = failure("a value before byte {} is longer than {} MiB", position(), kLimit >> 20U);
    } else if (code != Z_OK && code != Z_STREAM_END) {
      problem_ = failure("the gzip file is damaged after {} bytes of text ({})", position(), why);
    }
    return traits_type::eof();
  }
  read_ += static_cast<std::uint64_t>(got);
  setg(buffer_.data(), buffer_.data(), buffer_.data() + got);
  return traits_type::to_int_type(*gptr());
}

}  // namespace kvroof
