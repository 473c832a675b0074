// kvroof record -- CMD where CUPTI refuses something, or is another's.
#include "tests/catch.hpp"
#include "tests/support/made_recording.hpp"

using namespace kvroof::test;

TEST_CASE("Threads of a recorded program share buffers, and where CUPTI refuses that it is recorded as well") {
  const MadeRecording shared("3", "many_threads=1"), refused("3", "refuse_shared=1");
  if (lacks_cupti(shared.ran)) return;
  CHECK(shared.ran.err.find("made CUPTI") == std::string::npos);
  for (const MadeRecording* made : {&shared, &refused}) {
    CHECK(query(made->database, "SELECT count(*), (SELECT count(*) FROM kvroof_note WHERE key LIKE 'process %: "
                                "not_recorded') FROM CUPTI_ACTIVITY_KIND_KERNEL") == "3|0\n");
  }
}

TEST_CASE("Where CUPTI refuses memory pools the rest is recorded, and the trace says what is missing") {
  const MadeRecording made("3", "refuse_kind=50");
  INFO(made.ran.err);
  CHECK(made.ran.code == 5);
  if (lacks_cupti(made.ran)) return;
  CHECK(note_of(made.trace, "level") == "trace\n");
  CHECK(query(made.database, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == "3\n");
  CHECK(query(made.database, "SELECT localMemoryPoolAddress FROM CUDA_GPU_MEMORY_USAGE_EVENTS") == "57344\n");
  CHECK(query(made.database, "SELECT count(*) FROM sqlite_master WHERE name = 'CUDA_GPU_MEMORY_POOL_EVENTS'") == "0\n");
  CHECK(query(made.database, "SELECT value LIKE 'memory pools (%' FROM kvroof_note WHERE key LIKE "
                             "'process %: not_recorded'") == "1\n");
}

TEST_CASE("Beside a client of CUPTI that gave no name a program is recorded, beside one with a name it is not") {
  const MadeRecording unnamed("3", "subscriber=2"), named("3", "subscriber=1");
  INFO(unnamed.ran.err);
  if (lacks_cupti(unnamed.ran)) return;
  CHECK(unnamed.ran.err.find("made CUPTI") == std::string::npos);
  CHECK(query(unnamed.database, "SELECT count(*), (SELECT count(*) FROM kvroof_note WHERE key LIKE 'process %: "
                                "beside') FROM CUPTI_ACTIVITY_KIND_KERNEL") == "3|1\n");
  CHECK(note_of(unnamed.trace, "level") == "trace\n");
  CHECK(note_of(named.trace, "level") == "none\n");
  CHECK(note_of(named.trace, "why") == "another profiler holds CUPTI in this process: CUPTI for another\n");
}
