// A file of JSON text as a stream, decompressed on the way where it is a gzip file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <streambuf>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "traces/finite_numbers.hpp"

namespace kvroof {

class GzipStream : public std::streambuf {
 public:
  static Result<std::unique_ptr<GzipStream>> open(const std::filesystem::path& file);
  ~GzipStream() override;

  // Bytes handed out, as they are after decompression.
  [[nodiscard]] std::uint64_t position() const;
  [[nodiscard]] bool ended() const { return ended_ && gptr() == egptr(); }
  // A read error, a damaged gzip file, or more than `limit` bytes since the last call of mark().
  [[nodiscard]] const std::optional<Failure>& problem() const { return problem_; }
  void mark() { marked_ = position(); }

  static constexpr std::uint64_t kLimit = std::uint64_t{16} << 20;

 protected:
  int_type underflow() override;

 private:
  GzipStream() = default;
  std::size_t read_to(char* to, std::size_t most);
  struct File;
  std::unique_ptr<File> file_;
  std::vector<char> buffer_;
  FiniteNumbers numbers_;
  std::string held_;  // read, not yet handed out: perhaps the start of a word that is blanked out
  std::uint64_t read_ = 0, marked_ = 0;
  bool ended_ = false;
  std::optional<Failure> problem_;
};

}  // namespace kvroof
