// kvroof record -- CMD where the trace's place is taken, moved or removed: how the program ended is never lost.
#include "tests/catch.hpp"
#include "tests/support/made_recording.hpp"

using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

// Words of a shell that leave a process's spool without records.
const std::string kSpool = "echo kvroof spool 3 > $KVROOF_SPOOL_FOLDER/7-0.spool; ";

// Records a shell's `script` from `folder`.
Ran record_in(const fs::path& folder, const std::string& out, const std::string& script) {
  return run_program("record -q -o " + out + " -- /bin/sh -c '" + script + "'",
                     "cd " + folder.string() + "; " KVROOF_PROGRAM);
}

// What a message advises between ` and `, done.
int follow_advice(const std::string& message) {
  const auto begin = message.find("`kvroof ") + 8;
  return run_program(message.substr(begin, message.rfind('`') - begin) + " -q").code;
}

}  // namespace

TEST_CASE("Of a program that removes the recorder's folder the exit code stays, and why there is no trace is said") {
  const TemporaryFolder folder;
  const fs::path home = fs::canonical(folder.path());
  for (const auto& [ended, code] : {std::pair("5", 5), std::pair("0", 1)}) {
    const Ran ran = record_in(home, "run.kvt", std::string("rm -rf *.spools-*; exit ") + ended);
    CHECK(ran.code == code);
    CHECK(ran.err == "error: " + (home / "run.kvt").string() +
                         ": the folder of its records was removed while the program ran; the program ended with " +
                         ended + "\n");
    CHECK(fs::is_empty(home));
  }
}

TEST_CASE("Where a program moves the folder that it is recorded in, what was recorded is found and becomes a trace") {
  const TemporaryFolder folder;
  const fs::path home = fs::canonical(folder.path());
  fs::create_directory(home / "here");
  const Ran ran = record_in(home / "here", "run.kvt", kSpool + "mv " + (home / "here").string() + " " +
                                                          (home / "there").string() + "; exit 0");
  INFO(ran.err);
  CHECK(ran.code == 1);
  CHECK(ran.err.starts_with("error: " + (home / "here/run.kvt").string() +
                            ": its folder was moved while the program ran; the program ended with 0\nnote: what was "
                            "recorded is kept: `kvroof import spools " + (home / "there/run.kvt.spools-").string()));
  CHECK(follow_advice(ran.err) == 0);
  CHECK(note_of((home / "there/run.kvt").string(), "processes") == "1\n");
}

TEST_CASE("A relative name of a trace holds where the program removes the folder that it counts from") {
  const TemporaryFolder folder;
  const fs::path here = fs::canonical(folder.path()) / "here";
  fs::create_directory(here);
  const Ran ran = record_in(here, "../run.kvt", "rmdir " + here.string() + "; exit 6");
  CHECK(ran.code == 6);
  CHECK(ran.err.empty());
  CHECK(note_of(folder.file("run.kvt"), "exit_code") == "6\n");
}

TEST_CASE("Where the trace's name was taken meanwhile the program's exit code stays, and another name is advised") {
  const TemporaryFolder folder;
  const fs::path home = fs::canonical(folder.path());
  const Ran ran = record_in(home, "run.kvt", kSpool + "mkdir run.kvt; touch run.kvt/other; exit 5");
  INFO(ran.err);
  CHECK(ran.code == 5);
  CHECK(ran.err.starts_with("error: " + (home / "run.kvt").string() +
                            " exists already; the program ended with 5\nnote: what was recorded is kept: `kvroof "
                            "import spools "));
  CHECK(follow_advice(ran.err) == 0);
  CHECK(note_of((home / "run-2.kvt").string(), "processes") == "1\n");
  CHECK(fs::exists(home / "run.kvt/other"));
}

TEST_CASE("A name that no trace can have is refused before the program runs") {
  const TemporaryFolder folder;
  fs::create_symlink("nowhere", folder.path() / "link.kvt");
  for (const char* name : {"link.kvt", "link.kvt/"}) {
    const Ran ran = record_in(folder.path(), name, "touch ran");
    CHECK(ran.code == 2);
    CHECK(ran.err.starts_with("error: " + std::string(name) + ": exists already, and a recording never overwrites\n"));
  }
  const Ran unnamed = record_in(folder.path(), "''", "touch ran");
  CHECK(unnamed.code == 2);
  CHECK(unnamed.err == "error: -o '': expected a name: where the trace goes\n");
  CHECK_FALSE(fs::exists(folder.path() / "ran"));
}
