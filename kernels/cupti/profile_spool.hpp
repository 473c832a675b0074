// A profiler's records in a plain file: a recorded process writes it as it goes, cheaply and safe against its own
// death; it is read afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/core/error.hpp"
#include "traces/kernel_records.hpp"

namespace kvroof {

// The file starts with kSpoolMagic; then records, each a byte of type, its length (u32) and its fields in the order of
// kernel_records.hpp, little-endian; a text is the number (u32) of an earlier record of type text, or, from
// kPassingText on, that of a passing text: they stand before the record that has them and are forgotten after it. So
// neither the recorded process nor the reader keeps millions of texts. What the death of
// its writer cuts off is at most its last 256 KiB. The first record is room for why writing ended: a full disk leaves
// no other. The writer's process holds a lock of the file (fcntl) as long as it writes.
inline constexpr std::string_view kSpoolMagic = "kvroof spool 3\n";
// What the texts that a writer remembers may take of its process: most programs have a few thousand names.
inline constexpr std::size_t kMostTextBytes = std::size_t{16} << 20U;
inline constexpr std::uint32_t kPassingText = 1U << 31U;

class SpoolWriter final : public ProfileSink {
 public:
  // Creates the file, which must not exist. Every function throws Error when it cannot be written, is removed, or the
  // program that is recorded has closed its descriptor.
  explicit SpoolWriter(const std::filesystem::path& path);
  ~SpoolWriter() override;  // writes what is left, without a word where that fails
  SpoolWriter(const SpoolWriter&) = delete;
  SpoolWriter& operator=(const SpoolWriter&) = delete;

  void add(const KernelRecord& record) override;
  void add(const CopyRecord& record) override;
  void add(const FillRecord& record) override;
  void add(const CallRecord& record) override;
  void add(const RangeRecord& record) override;
  void add(const MemoryRecord& record) override;
  void add(const PoolRecord& record) override;
  void add(const OverheadRecord& record) override;
  void add(const EnvironmentRecord& record) override;
  void add(const DeviceRecord& record) override;
  void add(const ProcessRecord& record) override;
  void add(const OperatorRecord& record) override;
  void add(const CounterRecord& record) override;
  void note(std::string_view key, std::string_view value) override;
  void flush() override;

 private:
  template <class Record>
  void put(Record record);
  std::uint32_t text_number(std::string_view text);
  void write_reason(std::string_view reason) const;
  [[noreturn]] void fail(std::string_view why);
  void append(std::uint8_t type, std::string_view payload);

  // Names that the file has; nothing where the descriptor is not that file's any more.
  [[nodiscard]] std::optional<std::uint64_t> links() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t device_ = 0, inode_ = 0;
  bool failed_ = false;  // what would follow a gap is not written
  std::string pending_;
  std::string fields_;  // of the record in progress
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> texts_;
  std::size_t text_bytes_ = 0;
  std::uint32_t passing_ = 0;  // texts of the record in progress
};

struct SpoolCounts {
  std::uint64_t records = 0;
  std::uint64_t kernels = 0;
  bool cut = false;    // the file ends within a record: its writer died
  std::string damage;  // one sentence with its place: nothing from there on is read
};

// Whether a process still writes it. False where files cannot be locked.
bool is_being_written(const std::filesystem::path& path);

// Hands every whole record to the sink, in order; why writing ended early is a note. Damage is an unknown type, a
// record whose length is not its fields', a text that was not written before. A failure is one sentence: not a spool.
Result<SpoolCounts> read_spool(const std::filesystem::path& path, ProfileSink& to);
// The same of a file's bytes. `passed` is told, now and then, of how many nothing but texts is looked at again.
Result<SpoolCounts> parse_spool(std::string_view bytes, ProfileSink& to,
                                const std::function<void(std::size_t)>& passed = {});

}  // namespace kvroof
