// WriterLock: held by who writes a trace, so that no repair takes a recording that still runs for one that was killed.
#pragma once

#include <cstdint>
#include <filesystem>

namespace kvroof {

// An exclusive lock (flock) of the file writer.lock in a trace's folder. The system lets go of it with the process,
// however that ends, and programs that this one starts do not hold it. Readers need no lock: they ask for the seal.
class WriterLock {
 public:
  enum class Of : std::uint8_t {
    kNewTrace,   // makes the file; where the filesystem refuses locks, a trace is written without
    kLeftTrace,  // of a trace without the file, as other writers leave them, nothing is held
  };
  // Throws Error where another program holds it, where the file cannot be opened and, of a trace that was left, where
  // the filesystem cannot say whether its writer still runs.
  WriterLock(const std::filesystem::path& trace, Of of);
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;
  // Ends it and removes the file. Only of a trace that is sealed or gone: who has opened the file that is removed may
  // hold it next, beside one who makes it again, and both must find nothing to write.
  void remove();

 private:
  void release();

  std::filesystem::path file_;
  int descriptor_ = -1;
};

// Whether another program holds the lock of a trace: it is still being written. False where the filesystem cannot say.
bool has_writer(const std::filesystem::path& trace);

}  // namespace kvroof
