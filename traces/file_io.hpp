// Files, the careful way: read by pread, written under a temporary name, fsynced and renamed; and XXH3-64 checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/core/error.hpp"

namespace kvroof {

// A regular file open for reading; closed with the last copy.
struct OpenFile {
  std::shared_ptr<const int> descriptor;
  std::uint64_t size = 0;  // when it was opened
};

// Refuses folders, pipes and devices. The failure does not name the path.
Result<OpenFile> open_file(const std::filesystem::path& path);

// Fills `to` from byte `offset` on; nothing, or why not (the file is shorter than that, an I/O error).
std::optional<Failure> read_at(const OpenFile& file, std::uint64_t offset, std::span<std::byte> to);

// A whole small file; refuses more than `limit` bytes before allocating.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit);

// XXH3-64 with seed 0, fed in pieces.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t xxh3(std::string_view bytes);

// The checksum of a file's first `bytes` bytes, read in blocks.
Result<std::uint64_t> file_xxh3(const OpenFile& file, std::uint64_t bytes);

// 16 lower-case hexadecimal digits, and back.
std::string to_hex(std::uint64_t value);
std::optional<std::uint64_t> from_hex(std::string_view text);

// Whether a file may be put in the place of what is there: of nothing or of a plain file, not of a device, a pipe or a
// link.
bool is_replaceable(const std::filesystem::path& path);

// A file that appears under its name whole (commit, publish) or not at all; into what is not replaceable it is written
// straight. Every failure throws Error.
class AtomicFile {
 public:
  // Creates `<path>.part`, replacing what an interrupted writer left there.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();  // removes the temporary file unless it was committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  // The temporary file, or what is written straight, for a library that writes it by itself.
  [[nodiscard]] const std::filesystem::path& part() const { return part_; }
  // fsync, rename, fsync of the folder.
  void commit();
  // Rename alone: whole for everyone on this machine, even if this process is killed, but after a power cut only once
  // sync_path was called for the file and its folder.
  void publish();

 private:
  std::filesystem::path path_;
  std::filesystem::path part_;
  int descriptor_ = -1;
};

// Writes a small text file as a whole. Throws Error.
void write_text_file(const std::filesystem::path& path, std::string_view text);

// Appends to a file (created when absent) without synchronising. Throws Error.
void append_text(const std::filesystem::path& path, std::string_view text);

// Makes the content of a file or the names in a folder durable. Throws Error.
void sync_path(const std::filesystem::path& path);

}  // namespace kvroof
