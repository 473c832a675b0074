// kvroof record -- CMD: someone else's program runs as if nothing were there, and its GPU work becomes a trace.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/catch.hpp"
#include "tests/support/made_recording.hpp"

using namespace kvroof::test;

TEST_CASE("A program without CUDA runs as by itself, and the trace says that nothing was seen and why") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = run_program("record -q -o " + trace + " -- /bin/sh -c 'echo out; echo err >&2; exit 7'");
  CHECK(ran.code == 7);
  CHECK(ran.out == "out\n");
  CHECK(ran.err == "err\n");
  CHECK(note_of(trace, "level") == "none\n");
  CHECK(note_of(trace, "exit_code") == "7\n");
  CHECK(note_of(trace, "processes") == "0\n");
  const std::string why = note_of(trace, "why");
  CHECK((why.starts_with("no device was seen") || why == "no process of the program started CUDA\n"));
  CHECK(run_program("inspect " + trace + " --verify").code == 0);
  const auto notes = nlohmann::json::parse(run_program("inspect " + trace + " --format json").out)["profile"]["notes"];
  CHECK((notes["level"] == "none" && notes["exit_code"] == "7" && notes["processes"] == "0"));
  CHECK(notes["why"].get<std::string>() + "\n" == why);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);  // no spools are left
}

TEST_CASE("report-kernels of a recording without kernels says the level and why, in every format") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  REQUIRE(run_program("record -q -o " + trace + " -- /bin/true").code == 0);
  std::string why = note_of(trace, "why");
  why.pop_back();
  REQUIRE_FALSE(why.empty());
  for (const char* by : {"operator", "step"}) {
    const std::string report = "report-kernels " + trace + " --by " + by + " --format ";
    const Ran table = run_program(report + "table"), csv = run_program(report + "csv");
    CHECK((table.code == 0 && csv.code == 0));
    CHECK(table.out.find("none   " + why) != std::string::npos);
    const std::string quote = why.find(',') == std::string::npos ? "" : "\"";
    CHECK(csv.out == "kernels,level,why\n0,none," + quote + why + quote + "\n");
    const auto json = nlohmann::json::parse(run_program(report + "json").out);
    CHECK((json["level"] == "none" && json["why"] == why && json["operators"].empty() && json["steps"].empty()));
  }
}

TEST_CASE("A timeline of a recording in which nothing has a time is refused with the level that it reached, and why") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  REQUIRE(run_program("record -q -o " + trace + " -- /bin/true").code == 0);
  for (const char* kind : {"perfetto ", "chrome "}) {
    const Ran ran = run_program("export " + (kind + trace) + " -o " + folder.file("out"));
    CHECK(ran.code == 2);
    CHECK(ran.err ==
          "error: " + trace + ": nothing was recorded that has a time: level none, " + note_of(trace, "why"));
    CHECK_FALSE(std::filesystem::exists(folder.path() / "out"));
  }
}

TEST_CASE("Words after -- are the program's, whatever they look like, its input is ours") {
  const TemporaryFolder folder;
  const Ran ran = run_program("record -q -o " + folder.file("a.kvt") + " -- /bin/echo --help -o x --model y");
  CHECK(ran.out == "--help -o x --model y\n");
  CHECK(ran.code == 0);
  // What is written down is what a shell takes back.
  const std::string odd = R"(/bin/echo 'a  b' '$HOME' "it's" '' *.none)";
  REQUIRE(run_program("record -q -o " + folder.file("b.kvt") + " -- " + odd).out == "a  b $HOME it's  *.none\n");
  CHECK(note_of(folder.file("b.kvt"), "program") == R"(/bin/echo 'a  b' '$HOME' 'it'\''s' '' '*.none')" "\n");
}

TEST_CASE("A program that is not there, or none, is refused and leaves no trace") {
  const TemporaryFolder folder;
  const Ran missing = run_program("record -o " + folder.file("a.kvt") + " -- /nowhere/at-all");
  const std::string nothing = "; nothing was recorded, and there is no trace\n";
  CHECK(missing.code == 127);
  CHECK(missing.err == "error: /nowhere/at-all: cannot be run: No such file or directory" + nothing);
  const Ran unknown = run_program("record -o " + folder.file("a.kvt") + " -- no-such-command-anywhere");
  CHECK(unknown.code == 127);
  CHECK(unknown.err == "error: no-such-command-anywhere: cannot be run: not found in PATH" + nothing);
  CHECK(run_program("record -o " + folder.file("a.kvt") + " --").code == 2);
  for (const char* option : {"--model demo", "--policy h2o:budget=4", "-n 5", "--cupti trace", "--ignore-eos"}) {
    const Ran ran = run_program("record -o " + folder.file("a.kvt") + " " + option + " -- /bin/true");
    INFO(option);
    CHECK(ran.code == 2);
    CHECK(ran.err.find("and `-- CMD`: record runs a model, or someone else's program") != std::string::npos);
  }
  CHECK(run_program("record -q -o " + folder.file("b.kvt") + " -- /bin/true").code == 0);
  std::filesystem::remove_all(folder.path() / "b.kvt");
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("A file that cannot be run ends with 126, as shells do, says why, and leaves no trace") {
  const TemporaryFolder folder, empty;
  const auto make = [&](const std::string& name, const std::string& content, bool executable) {
    std::ofstream(folder.file(name)) << content;
    if (executable) std::filesystem::permissions(folder.file(name), std::filesystem::perms::owner_all);
    return folder.file(name);
  };
  const std::pair<std::string, std::string> refused[] = {
      {make("plain", "#!/bin/sh\n", false), "Permission denied"},
      {folder.path().string(), "it is a folder"},
      {make("lost", "#!/nowhere/sh\n", true), "the interpreter that it names is not there"},
      {make("text", "echo\n", true), "it is neither a program for this machine nor a script that begins with #!"}};
  for (const auto& [command, why] : refused) {
    const Ran ran = run_program("record -o " + empty.file("a.kvt") + " -- " + command);
    CHECK(ran.code == 126);
    CHECK(ran.err ==
          "error: " + command + ": cannot be run: " + why + "; nothing was recorded, and there is no trace\n");
  }
  CHECK(std::filesystem::is_empty(empty.path()));
}

TEST_CASE("A signal that ends the program, or is sent to the recorder, ends the program and seals the trace") {
  const TemporaryFolder folder;
  CHECK(run_program("record -q -o " + folder.file("a.kvt") + " -- /bin/sh -c 'kill -KILL $$'").code == 128 + SIGKILL);
  CHECK(note_of(folder.file("a.kvt"), "exit_code") == "137\n");

  const std::string ready = folder.file("ready"), trace = folder.file("b.kvt");
  const pid_t recorder = fork();
  REQUIRE(recorder >= 0);
  if (recorder == 0) {
    const std::string program = "trap 'exit 9' TERM; touch " + ready + "; while :; do sleep 0.05; done";
    execl(KVROOF_PROGRAM, KVROOF_PROGRAM, "record", "-q", "-o", trace.c_str(), "--", "/bin/sh", "-c", program.c_str(),
          nullptr);
    _exit(126);
  }
  while (!std::filesystem::exists(ready)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(recorder, SIGTERM);
  int status = 0;
  waitpid(recorder, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 9));
  CHECK(note_of(trace, "exit_code") == "9\n");
}

TEST_CASE("Kernels and ranges of every process are in the trace, under Nsight Systems' names, told apart by process") {
  const MadeRecording made("3 40");
  const Ran& ran = made.ran;
  const std::string &trace = made.trace, &database = made.database;
  INFO(ran.err);
  CHECK(ran.code == 5);
  CHECK(ran.out == "40 launched\n3 launched\n");
  if (lacks_cupti(ran)) return;
  CHECK(ran.err.find("43 kernels") != std::string::npos);
  CHECK(note_of(trace, "level") == "trace\n");
  CHECK(note_of(trace, "processes") == "2\n");
  CHECK(query(database, "SELECT COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL") == "43|21500\n");
  CHECK(query(database, "SELECT COUNT(DISTINCT globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL") == "2\n");
  CHECK(query(database,
              "SELECT s.value, COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.mangledName "
              "GROUP BY 1 ORDER BY 1") == "_Z4gemvPf|21\n_Z7softmaxPf|22\n");
  CHECK(query(database, "SELECT COUNT(*) FROM NVTX_EVENTS") == "2\n");
  // Stream 0 of two processes is two streams: a timeline has a track for each.
  REQUIRE(run_program("export chrome " + trace + " -o " + made.folder.file("run.json")).code == 0);
  std::set<std::string> tracks;
  const auto events = nlohmann::json::parse(std::ifstream(made.folder.file("run.json")))["traceEvents"];
  for (const auto& event : events) {
    if (event["name"] == "thread_name") tracks.insert(event["args"]["name"].get<std::string>());
  }
  CHECK(std::count_if(tracks.begin(), tracks.end(), [](const std::string& name) {
          return name.starts_with("GPU ") && name.find(", process ") != std::string::npos;
        }) == 2);
  CHECK(query(database, "SELECT value FROM kvroof_note WHERE key LIKE 'process %: dropped'") == "0\n0\n");
}

TEST_CASE("Ranges of a program that brings a CUPTI of its own go to that one, wherever another lies") {
  const TemporaryFolder other, out;
  if (!std::filesystem::exists(kMade + "/libcupti.so.13")) return;
  std::filesystem::copy(kMade + "/libcupti.so.13", other.path());
  const std::string own = "/usr/bin/env LD_PRELOAD=" + kMade + "/libcupti.so.13 ", trace = out.file("run.kvt");
  const Ran ran = run_program("record -o " + trace + " -- " + own + kMade + "/made_program 3",
                              "LD_LIBRARY_PATH=" + other.path().string() + " " KVROOF_PROGRAM);
  INFO(ran.err);
  CHECK(ran.code == 5);
  CHECK(query(trace + "/kernels.sqlite", "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == "3\n");
  CHECK(query(trace + "/kernels.sqlite", "SELECT COUNT(*) FROM NVTX_EVENTS") == "1\n");
}

TEST_CASE("What the user has named for NVTX has the ranges and is said, a CUPTI that would end the program has none") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), named = "LD_LIBRARY_PATH=" + kMade + " NVTX_INJECTION64_PATH=";
  const auto recorded = [&](const std::string& trace_of) {
    return query(trace_of + "/kernels.sqlite", "SELECT (SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL), (SELECT "
                                               "count(*) FROM sqlite_master WHERE name = 'NVTX_EVENTS')");
  };
  // It is replaced neither before the program nor in it.
  const Ran ran = run_program("record -o " + trace + " -- " + kMade + "/made_program 3",
                              named + "/opt/other.so " KVROOF_PROGRAM);
  if (lacks_cupti(ran)) return;
  CHECK(ran.err.starts_with("note: NVTX_INJECTION64_PATH is /opt/other.so, which gets the program's NVTX ranges; unset "
                            "it to have them in the trace\n"));
  CHECK(recorded(trace) == "3|0\n");
  for (const auto& [name, value, seen] : {std::tuple("a", "/opt/other.so", std::string("/opt/other.so")),
                                          std::tuple("b", "", kMade + "/libcupti.so.13")}) {  // empty: nothing is named
    CHECK(run_program("record -o " + folder.file(name) + " -- /bin/sh -c 'echo $NVTX_INJECTION64_PATH'",
                      named + value + " " KVROOF_PROGRAM).out == seen + "\n");
  }
  const MadeRecording old("3", "version=130000");
  CHECK(old.ran.err.find("libcupti.so.13 is of CUDA 13.0 before its first update") != std::string::npos);
  CHECK(recorded(old.trace) == "3|0\n");
}

TEST_CASE("Memory pools of a program are in the trace, of each process its own, and what was allocated from them") {
  const MadeRecording made("3 e20");
  INFO(made.ran.err);
  if (lacks_cupti(made.ran)) return;
  CHECK(made.ran.err.find("made CUPTI") == std::string::npos);
  CHECK(query(made.database,
              "SELECT start, operationType, poolType, address, minBytesToKeep, localMemoryPoolSize, count(DISTINCT "
              "globalPid) FROM CUDA_GPU_MEMORY_POOL_EVENTS WHERE globalPid IN (SELECT globalPid FROM PROCESSES) "
              "GROUP BY 1 ORDER BY 1") ==
        "60|1|1|57344|NULL|2097152|3\n62|3|1|57344|4096|2097152|3\n63|2|1|57344|NULL|2097152|3\n");
  CHECK(query(made.database, "SELECT start, bytes, localMemoryPoolAddress, localMemoryPoolUtilizedSize, count(*) FROM "
                             "CUDA_GPU_MEMORY_USAGE_EVENTS GROUP BY 1") == "61|1048576|57344|1048576|3\n");
}

TEST_CASE("Children of a program, forked or started anew, one of them killed, have records and a GPU of their own") {
  const MadeRecording made("3 40 f50 k600");
  const Ran& ran = made.ran;
  const std::string& database = made.database;
  INFO(ran.err);
  CHECK(ran.code == 5);
  if (lacks_cupti(ran)) return;
  CHECK(ran.err.find("made CUPTI") == std::string::npos);
  CHECK(ran.err.find("of 4 processes; of 1 the end may be missing: `kvroof inspect` says why\n") != std::string::npos);
  // Correlations begin at 1 in each process: nothing of one may pass for another's.
  CHECK(query(database, "SELECT count(*), min(correlationId), max(correlationId), count(DISTINCT correlationId) FROM "
                        "CUPTI_ACTIVITY_KIND_KERNEL GROUP BY globalPid ORDER BY 1") ==
        "3|1|3|3\n40|1|40|40\n50|1|50|50\n600|1|600|600\n");
  CHECK(query(database, "SELECT count(*), count(DISTINCT globalPid), min(name) LIKE '%/made_program' FROM PROCESSES "
                        "WHERE pid = globalPid / 0x1000000 % 0x1000000 AND globalPid IN (SELECT globalPid FROM "
                        "CUPTI_ACTIVITY_KIND_KERNEL)") == "4|4|1\n");
  // Device 0 of the forked children is another GPU than the others' device 0.
  CHECK(query(database, "SELECT count(*), count(DISTINCT uuid) FROM TARGET_INFO_GPU") == "2|2\n");
  CHECK(query(database, "SELECT g.uuid, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN TARGET_INFO_CUDA_DEVICE d ON "
                        "d.cudaId = k.deviceId AND d.pid = k.globalPid / 0x1000000 % 0x1000000 JOIN TARGET_INFO_GPU g "
                        "ON g.id = d.gpuId GROUP BY 1 ORDER BY 1") ==
        "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0|43\nGPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1|650\n");
  CHECK(query(database, "SELECT count(*) FROM kvroof_note WHERE key LIKE 'process %: ended_early'") == "1\n");
}

TEST_CASE("Programs that one process became by exec are two processes to every query, both under their true pid") {
  const MadeRecording made("3 e20");
  const Ran& ran = made.ran;
  const std::string& database = made.database;
  INFO(ran.err);
  CHECK(ran.code == 5);
  if (lacks_cupti(ran)) return;
  const std::string by_process = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN PROCESSES p ON ";
  CHECK(query(database, by_process + "p.globalPid = k.globalPid GROUP BY k.globalPid ORDER BY 1") == "3\n7\n20\n");
  CHECK(query(database, "SELECT count(*), count(DISTINCT globalPid), count(DISTINCT pid) FROM PROCESSES") == "3|3|2\n");
  // No pid of Linux is above 2^22, so that the second program can be taken for no other process.
  CHECK(query(database, "SELECT globalPid / 0x1000000 % 0x1000000, (SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                        "WHERE k.globalPid = p.globalPid) FROM PROCESSES p WHERE pid <> globalPid / 0x1000000 % "
                        "0x1000000") == "4194305|7\n");
  // As Nsight's users join launches and GPUs.
  CHECK(query(database, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN TARGET_INFO_CUDA_DEVICE d ON "
                        "d.cudaId = k.deviceId AND d.pid = k.globalPid / 0x1000000 % 0x1000000") == "30\n");
  CHECK(query(database, "SELECT count(DISTINCT substr(key, 1, instr(key, '-') - 1)) FROM kvroof_note WHERE key LIKE "
                        "'process %-1: dropped'") == "1\n");
  // An import of the file keeps them apart.
  const std::string again = made.folder.file("again.kvt");
  CHECK(run_program("import nsys " + database + " -q -o " + again).code == 0);
  CHECK(query(again + "/kernels.sqlite", "SELECT group_concat(pid) FROM PROCESSES ORDER BY globalPid") ==
        query(database, "SELECT group_concat(pid) FROM PROCESSES ORDER BY globalPid"));
}

TEST_CASE("Of a process that outlives the command the trace has what it recorded, and says that it was still running") {
  const MadeRecording made("3 s20");
  const Ran& ran = made.ran;
  const std::string& database = made.database;
  INFO(ran.err);
  CHECK(ran.code == 5);
  if (lacks_cupti(ran)) return;
  CHECK(ran.err.ends_with("of 2 processes; 1 still running: what it does later is not in it\n"));
  CHECK(query(database, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == "23\n");
  CHECK(query(database, "SELECT value FROM kvroof_note WHERE key LIKE 'process %: ended_early'") ==
        "still running when the command ended: what it did later is not here\n");
  CHECK(std::distance(std::filesystem::directory_iterator(made.folder.path()), {}) == 1);
}

TEST_CASE("Spools that a killed recorder left become a trace, and a folder without readable ones is refused") {
  const TemporaryFolder folder;
  const std::string spools = folder.file("spools"), trace = folder.file("run.kvt");
  std::filesystem::create_directory(spools);
  CHECK(run_program("import spools " + spools + " -o " + trace).err == "error: " + spools + ": no spool is in it\n");
  std::ofstream(spools + "/9-0.spool") << "no spool";
  const Ran damaged = run_program("import spools " + spools + " -o " + trace);
  CHECK(damaged.code == 1);
  CHECK(damaged.err.starts_with("error: " + spools + ": no spool in it can be read: not a spool: "));
  const Ran file = run_program("import spools " + spools + "/9-0.spool -o " + trace);
  CHECK(file.err.find("not a folder") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(trace));

  REQUIRE(run_program("3 40", "LD_LIBRARY_PATH=" + kMade + " KVROOF_SPOOL_FOLDER=" + spools +
                                  " CUDA_INJECTION64_PATH=" KVROOF_INJECT " " + kMade + "/made_program")
              .code == 5);
  std::filesystem::remove(spools + "/9-0.spool");
  const auto one = *std::filesystem::directory_iterator(spools);
  std::ofstream(one.path(), std::ios::app | std::ios::binary).write("\x63\0\0\0\0", 5);
  const Ran ran = run_program("import spools " + spools + " -o " + trace);
  INFO(ran.err);
  CHECK(ran.code == 0);
  CHECK(note_of(trace, "processes") == "2\n");
  CHECK(note_of(trace, "imported_from") == "spools\n");
  CHECK(std::distance(std::filesystem::directory_iterator(spools), {}) == 2);
  if (lacks_cupti(ran)) return;
  CHECK(query(trace + "/kernels.sqlite", "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == "43\n");
  CHECK(query(trace + "/kernels.sqlite", "SELECT count(*) FROM kvroof_note WHERE key LIKE 'process %: ended_early' AND "
                                         "value LIKE 'what follows is lost: %type 99 is not known'") == "1\n");
  CHECK(ran.err.find("43 kernels") != std::string::npos);
}

TEST_CASE("A recorder that is interrupted while it merges keeps the spools, says how to go on, and leaves no trace") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), many = folder.file("many");
  std::string overheads = "kvroof spool 3\n";
  for (int i = 0; i < 2'000'000; ++i) overheads.append("\x07\x14\0\0\0", 5).append(20, '\1');
  std::ofstream(many, std::ios::binary) << overheads;
  const Ran ran = run_program("record -o " + trace + " -- /bin/sh -c 'cp " + many +
                              " $KVROOF_SPOOL_FOLDER/7-0.spool; (while kill -0 $$ 2>/dev/null; do sleep 0.01; done; "
                              "kill -TERM $PPID) >/dev/null 2>&1 & exit 0'");
  INFO(ran.err);
  CHECK(ran.code == 143);
  CHECK(ran.err.starts_with("error: " + trace +
                            ": interrupted before the trace was whole; the program ended with 0\nnote: what was "
                            "recorded is kept: `kvroof import spools " + trace + ".spools-"));
  CHECK_FALSE(std::filesystem::exists(trace));
  const auto command = ran.err.find("import spools");
  REQUIRE(command != std::string::npos);
  CHECK(run_program(ran.err.substr(command, ran.err.rfind('`') - command) + " -q").code == 0);
}

TEST_CASE("The injected library alone is silent, without a folder for spools does nothing, and shows one function") {
  const TemporaryFolder folder;
  const std::string inject = "CUDA_INJECTION64_PATH=" KVROOF_INJECT " ";
  const Ran alone = run_program("0", inject + kMade + "/made_program");
  CHECK(alone.code == 5);
  CHECK(alone.out == "0 launched\n");
  CHECK(alone.err.empty());
  const Ran spooled = run_program("0", "KVROOF_SPOOL_FOLDER=" + folder.path().string() + " " + inject + kMade +
                                           "/made_program");
  CHECK((spooled.code == 5 && spooled.err.empty()));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  // A folder that cannot be written is no reason to disturb the program.
  const Ran nowhere = run_program("0", "KVROOF_SPOOL_FOLDER=/nowhere/at-all " + inject + kMade + "/made_program");
  CHECK((nowhere.code == 5 && nowhere.err.empty()));
  void* const library = dlopen(KVROOF_INJECT, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  CHECK(dlsym(library, "InitializeInjection") != nullptr);
  dlclose(library);
}
