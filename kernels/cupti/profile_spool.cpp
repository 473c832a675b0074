#include "kernels/cupti/profile_spool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <type_traits>

#include "kernels/cupti/spool_records.hpp"
#include "sim/core/byte_reader.hpp"

namespace kvroof {
namespace {

using namespace spool;

constexpr std::size_t kPending = std::size_t{256} << 10;
constexpr std::size_t kReasonBytes = 240;
constexpr int kHighDescriptor = 512;
constexpr std::size_t kPassed = std::size_t{8} << 20;
constexpr std::size_t kTextNodeBytes = 80;  // about what a map takes for a text beside its characters
constexpr std::size_t kHeadBytes = 1 + sizeof(std::uint32_t);  // a record's type and length

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Values one behind the other; a text is replaced by its number.
template <class NumberOf>
class Encoder {
 public:
  Encoder(std::string& bytes, NumberOf number_of) : number_of_(number_of), bytes_(bytes) {}
  template <class... Values>
  void operator()(const Values&... values) {
    (value(values), ...);
  }

 private:
  void value(std::string_view text) { value(number_of_(text)); }
  void value(bool flag) { value(static_cast<std::uint8_t>(flag)); }
  template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
  void value(T number) {
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    bytes_.append(bytes, sizeof number);
  }
  NumberOf number_of_;
  std::string& bytes_;
};

struct Texts {
  std::vector<std::string_view> kept, passing;
  [[nodiscard]] bool has(std::uint32_t number) const {
    return number < kPassingText ? number < kept.size() : number - kPassingText < passing.size();
  }
  [[nodiscard]] std::string_view operator[](std::uint32_t number) const {
    return number < kPassingText ? kept[number] : passing[number - kPassingText];
  }
};

class Decoder {
 public:
  Decoder(std::string_view payload, const Texts& texts)
      : reader_(std::as_bytes(std::span(payload))), size_(payload.size()), texts_(texts) {}
  template <class... Values>
  void operator()(Values&... values) {
    (value(values), ...);
  }
  // Every byte was a field's, and every text is known.
  [[nodiscard]] bool whole() const { return !reader_.ran_out() && reader_.position() == size_ && known_; }

 private:
  void value(std::string_view& text) {
    const auto number = reader_.read<std::uint32_t>();
    known_ = known_ && texts_.has(number);
    text = texts_.has(number) ? texts_[number] : std::string_view();
  }
  void value(bool& flag) { flag = reader_.read<std::uint8_t>() != 0; }
  template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
  void value(T& number) {
    number = reader_.read<T>();
  }
  ByteReader reader_;
  std::size_t size_;
  const Texts& texts_;
  bool known_ = true;
};

void give(const Note& note, ProfileSink& to) { to.note(note.key, note.value); }
void give(const BareMemory& bare, ProfileSink& to) { to.add(bare.memory); }
void give(const PooledMemory& pooled, ProfileSink& to) { to.add(pooled.memory); }
template <class Record>
void give(const Record& record, ProfileSink& to) {
  to.add(record);
}

// Whether the payload is such a record.
template <class Record>
bool take(std::string_view payload, const Texts& texts, ProfileSink& to) {
  Record record;
  Decoder decoder(payload, texts);
  fields(decoder, record);
  if (decoder.whole()) give(record, to);
  return decoder.whole();
}

using Take = bool (*)(std::string_view, const Texts&, ProfileSink&);

Take reader_of(std::uint8_t type) {
  switch (type) {
    case kType<KernelRecord>: return take<KernelRecord>;
    case kType<CopyRecord>: return take<CopyRecord>;
    case kType<FillRecord>: return take<FillRecord>;
    case kType<CallRecord>: return take<CallRecord>;
    case kType<RangeRecord>: return take<RangeRecord>;
    case kType<MemoryRecord>: return take<MemoryRecord>;
    case kType<BareMemory>: return take<BareMemory>;
    case kType<PooledMemory>: return take<PooledMemory>;
    case kType<PoolRecord>: return take<PoolRecord>;
    case kType<OverheadRecord>: return take<OverheadRecord>;
    case kType<EnvironmentRecord>: return take<EnvironmentRecord>;
    case kType<DeviceRecord>: return take<DeviceRecord>;
    case kType<ProcessRecord>: return take<ProcessRecord>;
    case kType<OperatorRecord>: return take<OperatorRecord>;
    case kType<CounterRecord>: return take<CounterRecord>;
    case kType<Note>: return take<Note>;
    default: return nullptr;
  }
}

}  // namespace

SpoolWriter::SpoolWriter(const std::filesystem::path& path) : path_(path), pending_(kSpoolMagic) {
  descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw Error(fmt::format("{}: cannot be created: {}", path.string(), std::strerror(errno)));
  // Programs close and reuse low descriptors that they believe to be their own.
  if (const int high = fcntl(descriptor_, F_DUPFD_CLOEXEC, kHighDescriptor); high >= 0) {
    close(descriptor_);
    descriptor_ = high;
  }
  struct stat facts {};
  fstat(descriptor_, &facts);
  device_ = facts.st_dev;
  inode_ = facts.st_ino;
  // Of the process alone: a forked child has none, and it ends with the program, by exec too.
  struct flock whole = whole_file();
  static_cast<void>(fcntl(descriptor_, F_SETLK, &whole));
  append(kReason, std::string(kReasonBytes, '\0'));
  try {
    flush();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

SpoolWriter::~SpoolWriter() {
  try {
    flush();
  } catch (const Error&) {  // whoever wanted to know has flushed
  }
  if (links()) close(descriptor_);
}

std::optional<std::uint64_t> SpoolWriter::links() const {
  struct stat facts {};
  if (fstat(descriptor_, &facts) != 0 || facts.st_dev != device_ || facts.st_ino != inode_) return std::nullopt;
  return facts.st_nlink;
}

void SpoolWriter::flush() {
  if (failed_) pending_.clear();
  if (pending_.empty()) return;
  // Once the command has ended its spools are read and removed: what outlives it must not fill a disk in secret.
  const auto names = links();
  if (!names) fail("the program has closed it");
  if (*names == 0) fail("it was removed");
  for (std::string_view left = pending_; !left.empty();) {
    const ssize_t n = write(descriptor_, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(std::strerror(errno));
    left.remove_prefix(static_cast<std::size_t>(n));
  }
  pending_.clear();
}

void SpoolWriter::fail(std::string_view why) {
  failed_ = true;
  pending_.clear();
  const std::string reason = fmt::format("{}: cannot be written: {}", path_.string(), why);
  if (links()) write_reason(reason);
  throw Error(reason);
}

// Over bytes that the file has already, for which there is room on any disk.
void SpoolWriter::write_reason(std::string_view reason) const {
  const std::string_view kept = reason.substr(0, kReasonBytes);
  static_cast<void>(!pwrite(descriptor_, kept.data(), kept.size(), kSpoolMagic.size() + kHeadBytes));
}

void SpoolWriter::append(std::uint8_t type, std::string_view payload) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  char bytes[sizeof length];
  std::memcpy(bytes, &length, sizeof length);
  pending_.push_back(static_cast<char>(type));
  pending_.append(bytes, sizeof length).append(payload);
  if (pending_.size() >= kPending) flush();
}

std::uint32_t SpoolWriter::text_number(std::string_view text) {
  if (const auto found = texts_.find(text); found != texts_.end()) return found->second;
  const std::size_t bytes = kTextNodeBytes + text.size();
  if (text_bytes_ + bytes > kMostTextBytes) {
    append(kPassing, text);
    return kPassingText + passing_++;
  }
  text_bytes_ += bytes;
  const auto number = static_cast<std::uint32_t>(texts_.size());
  texts_.emplace(text, number);
  append(kText, text);
  return number;
}

template <class Record>
void SpoolWriter::put(Record record) {
  fields_.clear();
  Encoder encoder(fields_, [this](std::string_view text) { return text_number(text); });
  fields(encoder, record);
  append(kType<Record>, fields_);
  passing_ = 0;
}

void SpoolWriter::add(const KernelRecord& record) { put(record); }
void SpoolWriter::add(const CopyRecord& record) { put(record); }
void SpoolWriter::add(const FillRecord& record) { put(record); }
void SpoolWriter::add(const CallRecord& record) { put(record); }
void SpoolWriter::add(const RangeRecord& record) { put(record); }
void SpoolWriter::add(const MemoryRecord& record) { put(record); }
void SpoolWriter::add(const PoolRecord& record) { put(record); }
void SpoolWriter::add(const OverheadRecord& record) { put(record); }
void SpoolWriter::add(const EnvironmentRecord& record) { put(record); }
void SpoolWriter::add(const DeviceRecord& record) { put(record); }
void SpoolWriter::add(const ProcessRecord& record) { put(record); }
void SpoolWriter::add(const OperatorRecord& record) { put(record); }
void SpoolWriter::add(const CounterRecord& record) { put(record); }
void SpoolWriter::note(std::string_view key, std::string_view value) { put(Note{key, value}); }

Result<SpoolCounts> parse_spool(std::string_view bytes, ProfileSink& to,
                                const std::function<void(std::size_t)>& passed) {
  if (!bytes.starts_with(kSpoolMagic)) return failure("not a spool: it does not start with '{}'", kSpoolMagic);
  SpoolCounts counts;
  Texts texts;
  std::size_t told = 0;
  for (std::size_t at = kSpoolMagic.size(); at < bytes.size();) {
    std::uint32_t length = 0;
    const bool has_head = bytes.size() - at >= kHeadBytes;
    if (has_head) std::memcpy(&length, bytes.data() + at + 1, sizeof length);
    counts.cut = !has_head || bytes.size() - at - kHeadBytes < length;
    if (counts.cut) break;
    const auto type = static_cast<std::uint8_t>(bytes[at]);
    const std::string_view payload = bytes.substr(at + kHeadBytes, length);
    if (type == kText) {
      texts.kept.push_back(payload);
    } else if (type == kPassing) {
      texts.passing.push_back(payload);
    } else if (type == kReason) {
      const std::string_view reason = payload.substr(0, payload.find('\0'));
      if (!reason.empty()) to.note("ended_early", reason);
    } else {
      const Take take_it = reader_of(type);
      if (take_it == nullptr || !take_it(payload, texts, to)) {
        counts.damage = fmt::format("byte {}: a record of type {} is {}", at, type,
                                    take_it == nullptr ? "not known" : "damaged");
        break;
      }
      texts.passing.clear();
      ++counts.records;
      counts.kernels += type == kType<KernelRecord>;
    }
    at += kHeadBytes + length;
    if (passed && at - told >= kPassed) passed(told = at);
  }
  return counts;
}

bool is_being_written(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct flock lock = whole_file();
  const bool asked = descriptor >= 0 && fcntl(descriptor, F_GETLK, &lock) == 0;
  if (descriptor >= 0) close(descriptor);
  return asked && lock.l_type != F_UNLCK;
}

Result<SpoolCounts> read_spool(const std::filesystem::path& path, ProfileSink& to) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts {};
  if (descriptor < 0 || fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    if (descriptor >= 0) close(descriptor);
    return failure("cannot be read: {}", std::strerror(errno));
  }
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* const memory = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) return failure("cannot be mapped: {}", std::strerror(errno));
  // Pages behind are given back: what is read of them again comes from the file. The size of a spool is no matter.
  const auto give_back = [memory](std::size_t bytes) {
    static_cast<void>(madvise(memory, bytes & ~(static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) - 1), MADV_DONTNEED));
  };
  auto counts = parse_spool(std::string_view(static_cast<const char*>(memory), size), to, give_back);
  if (memory != nullptr) munmap(memory, size);
  return counts;
}

}  // namespace kvroof
