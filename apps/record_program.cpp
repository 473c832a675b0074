#include "apps/record_program.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>

#include "kernels/cupti/inject/inject.hpp"
#include "kernels/cupti/machine.hpp"
#include "kernels/cupti/profile_spool.hpp"
#include "kvroof_version.hpp"
#include "sim/core/suggest.hpp"
#include "traces/forwarding_sink.hpp"
#include "traces/writer.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

fs::path inject_library() {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& place : {folder.parent_path() / "lib", folder}) {
    if (fs::exists(place / kInjectLibrary, ignored)) return place / kInjectLibrary;
  }
  throw Error(fmt::format("{} was not found in {}", kInjectLibrary, (folder.parent_path() / "lib").string()))
      .note("`cmake --build build` makes it beside the program");
}

// The folder where processes write while the program runs; gone in the end.
class SpoolFolder {
  // Never inside: `run.kvt/` names run.kvt.
  static fs::path beside(const fs::path& out) {
    const fs::path path = fs::absolute(out).lexically_normal();
    return (path.has_filename() ? path : path.parent_path()).string() + ".spools-XXXXXX";
  }

 public:
  explicit SpoolFolder(const fs::path& out) : path_(beside(out)) {
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr) {
      throw Error(fmt::format("{}: no folder can be made beside it: {}", out.string(), std::strerror(errno)));
    }
    path_ = name;
  }
  ~SpoolFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  SpoolFolder(const SpoolFolder&) = delete;
  SpoolFolder& operator=(const SpoolFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  // Spools by process, then in the order in which it wrote them.
  [[nodiscard]] std::vector<fs::path> files() const {
    std::map<std::pair<unsigned long, unsigned long>, fs::path> sorted;
    for (const auto& entry : fs::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      char* end = nullptr;
      const unsigned long process = std::strtoul(name.c_str(), &end, 10);
      sorted[{process, *end == '-' ? std::strtoul(end + 1, nullptr, 10) : 0}] = entry.path();
    }
    std::vector<fs::path> files;
    for (const auto& [key, path] : sorted) files.push_back(path);
    return files;
  }

 private:
  fs::path path_;
};

// This process's environment with some variables set.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& set) {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    if (set.count(variable.substr(0, variable.find('='))) == 0) variables.push_back(variable);
  }
  for (const auto& [name, value] : set) variables.push_back(name + "=" + value);
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

std::atomic<pid_t> g_program{0};

// Signals that someone sends to us are the program's; those of the terminal reach it by themselves.
void pass_on(int signal, siginfo_t* info, void*) {
  const pid_t program = g_program.load();
  if (program > 0 && info->si_code <= 0) kill(program, signal);
}

constexpr int kPassed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// Starts the program with the default answers to the signals that we pass on; the exit code as a shell has it.
int run_to_its_end(std::vector<std::string> words, std::vector<std::string> variables) {
  sigset_t passed, before;
  sigemptyset(&passed);
  for (const int signal : kPassed) {
    struct sigaction own {};
    sigaction(signal, nullptr, &own);
    if (own.sa_handler != SIG_IGN) sigaddset(&passed, signal);  // nohup: ignored here and by the program
  }
  sigprocmask(SIG_BLOCK, &passed, &before);  // until there is someone to pass them to
  struct sigaction action {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int signal : kPassed) {
    if (sigismember(&passed, signal) == 1) sigaction(signal, &action, nullptr);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigdefault(&attributes, &passed);
  posix_spawnattr_setsigmask(&attributes, &before);
  pid_t process = 0;
  const int refused = posix_spawnp(&process, words[0].c_str(), nullptr, &attributes, pointers(words).data(),
                                   pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  g_program.store(refused == 0 ? process : 0);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (refused != 0) throw Error(fmt::format("{}: cannot be run: {}", words[0], std::strerror(refused)));
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  g_program.store(0);
  action.sa_handler = SIG_DFL;
  action.sa_flags = 0;
  for (const int signal : kPassed) {
    if (sigismember(&passed, signal) == 1) sigaction(signal, &action, nullptr);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A process's records go on to the trace; its notes are kept for one list of all processes.
class ProcessSink final : public ForwardingSink {
 public:
  explicit ProcessSink(ProfileSink& to) : to_(to) {}
  void note(std::string_view key, std::string_view value) override { notes[std::string(key)] = value; }
  std::map<std::string, std::string> notes;

 private:
  ProfileSink& to() override { return to_; }
  ProfileSink& to_;
};

struct Merged {
  std::size_t processes = 0;  // that started CUDA
  std::size_t recorded = 0;   // of them, that had a recorder
  std::uint64_t records = 0, kernels = 0;
  std::uint64_t dropped = 0;
  std::size_t ended_early = 0;  // processes
  std::string why;            // of the first process without one
};

// A recorder that ends in order writes this note among its last.
constexpr const char* kLastNote = "dropped";

// Notes of a process carry its number: "process 4711: dropped".
void merge_process(const fs::path& file, ProfileSink& to, Merged& merged) {
  ProcessSink sink(to);
  const Result<SpoolCounts> read = read_spool(file, sink);
  const SpoolCounts counts = read ? read.value() : SpoolCounts{};
  ++merged.processes;
  merged.records += counts.records;
  merged.kernels += counts.kernels;
  const std::string process = file.filename().string();
  const std::string name = "process " + process.substr(0, process.find('-'));
  const bool closed = sink.notes.contains("why") || sink.notes.contains(kLastNote);
  if (!read) {
    sink.notes["why"] = read.error();
  } else if (counts.cut || !closed) {
    sink.notes.try_emplace("ended_early",
                           "the process was killed or left without exit handlers: its last records may be lost");
  }
  if (const auto why = sink.notes.find("why"); why == sink.notes.end()) {
    ++merged.recorded;
  } else if (merged.why.empty()) {
    merged.why = why->second;
  }
  merged.ended_early += sink.notes.contains("ended_early");
  if (const auto lost = sink.notes.find(kLastNote); lost != sink.notes.end()) {
    merged.dropped += std::strtoull(lost->second.c_str(), nullptr, 10);
  }
  for (const auto& [key, value] : sink.notes) to.note(key == "process" ? name : name + ": " + key, value);
}

std::string nothing_recorded(const Merged& merged) {
  if (!merged.why.empty()) return merged.why;
  const DriverFacts driver = this_machine().driver();
  if (driver.version == 0) return "no device was seen: there is no NVIDIA driver here (libcuda.so.1)";
  if (driver.devices.empty()) return "no device was seen" + (driver.problem.empty() ? "" : ": " + driver.problem);
  return "no process of the program started CUDA";
}

Merged write_trace(const Arguments& arguments, const fs::path& out, const SpoolFolder& spools, int code) {
  TraceManifest manifest;
  manifest.source = "profile";
  manifest.tool_version = kVersion;
  manifest.command_line = arguments.command_line;
  TraceWriter writer(out, manifest);
  ProfileSink& sink = writer.profile();
  Merged merged;
  for (const fs::path& file : spools.files()) merge_process(file, sink, merged);
  sink.note("program", join(arguments.program, " "));
  sink.note("exit_code", std::to_string(code));
  sink.note("processes", std::to_string(merged.processes));
  sink.note("level", merged.recorded > 0 ? "trace" : "none");
  if (merged.recorded < merged.processes || merged.processes == 0) {
    merged.why = nothing_recorded(merged);
    sink.note("why", merged.why);
  }
  writer.seal();
  return merged;
}

}  // namespace

int record_program(const Arguments& arguments, const fs::path& out) {
  const SpoolFolder spools(out);
  const Machine machine = this_machine();
  std::map<std::string, std::string> set = {{"CUDA_INJECTION64_PATH", inject_library().string()},
                                            {kSpoolFolderVariable, spools.path().string()}};
  // NVTX calls reach CUPTI when it is named before the first of them.
  const auto cupti = find_library(machine, kCuptiFile);
  if (!cupti.empty()) set["NVTX_INJECTION64_PATH"] = cupti.front();
  if (const auto other = machine.variable("CUDA_INJECTION64_PATH"); other && !arguments.quiet) {
    fmt::print(stderr, "note: CUDA_INJECTION64_PATH was {}; the program gets kvroof's recorder instead\n", *other);
  }
  const int code = run_to_its_end(arguments.program, environment_with(set));
  const Merged merged = write_trace(arguments, out, spools, code);
  if (!arguments.quiet) {
    std::string more = merged.why.empty() ? "" : "; " + merged.why;
    if (merged.dropped > 0) more += fmt::format("; {} records were dropped", merged.dropped);
    if (merged.ended_early > 0) {
      more += fmt::format("; of {} the end may be missing: `kvroof inspect` says why", merged.ended_early);
    }
    fmt::print(stderr, "{}: {} kernels, {} records of {} process{}{}\n", out.string(), merged.kernels, merged.records,
               merged.processes, merged.processes == 1 ? "" : "es", more);
  }
  return code;
}

}  // namespace kvroof
