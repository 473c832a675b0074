// Recordings of the made program, which uses the made CUDA and CUPTI (made_cuda).
#pragma once

#include <cstdio>
#include <string>

#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"

namespace kvroof::test {

inline const std::string kMade = KVROOF_MADE_CUDA;  // the folder of the made CUPTI and of the made program

inline std::string note_of(const std::string& trace, const std::string& key) {
  return query(trace + "/kernels.sqlite", "SELECT value FROM kvroof_note WHERE key = '" + key + "'");
}

// Whether the build has no recorder to test, which is then said.
inline bool lacks_cupti(const Ran& ran) {
  const bool lacks = ran.err.find("this build has no CUPTI") != std::string::npos;
  if (lacks) std::puts("SKIPPED: built without CUPTI's headers");
  return lacks;
}

// `wishes` of the made CUPTI.
struct MadeRecording {
  explicit MadeRecording(const std::string& words, const std::string& wishes = "")
      : ran(run_program("record -o " + trace + " -- " + kMade + "/made_program " + words,
                        "MADE_CUPTI=" + wishes + " LD_LIBRARY_PATH=" + kMade + " " KVROOF_PROGRAM)) {}
  TemporaryFolder folder;
  std::string trace = folder.file("run.kvt"), database = trace + "/kernels.sqlite";
  Ran ran;
};

}  // namespace kvroof::test
