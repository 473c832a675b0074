// Files, the careful way: read by pread up to a limit; written under a temporary name, fsynced and renamed.
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

// Refuses folders, pipes and devices, and says why a file cannot be opened. No failure here names the path.
Result<OpenFile> open_file(const std::filesystem::path& path);

// Fills `to` from byte `offset` on; nothing, or why not (the file is shorter than that, an I/O error).
std::optional<Failure> read_at(const OpenFile& file, std::uint64_t offset, std::span<std::byte> to);

// A whole small file; refuses more than `limit` bytes before allocating.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit);

// The same of what a user names, which may also be a pipe, read until its writers close it, or "-", standard input.
Result<std::string> read_input(const std::filesystem::path& path, std::uint64_t limit);

// Whether a file may be put in the place of what is there: of nothing or of a plain file, not of a device, a pipe or a
// link.
bool is_replaceable(const std::filesystem::path& path);

// A name to write under before a rename to `path`: `<path>.<8 digits>.part`, another one at each call, so that two that
// write `path` at the same time do not write one file; or `path` itself where that is not replaceable.
std::string temporary_name(const std::filesystem::path& path);

// A file that appears under its name whole (commit, publish) or not at all; of several that write it at the same time,
// each its own, the last stays. Into what is not replaceable it is written straight. Every failure throws Error.
class AtomicFile {
 public:
  // Creates a file of the temporary_name, beside `path`, from where a rename is one step.
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
