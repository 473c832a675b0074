#include "apps/generate/record_program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <vector>

#include "apps/cli/messages.hpp"
#include "apps/cli/options.hpp"
#include "apps/generate/spools.hpp"
#include "apps/generate/watched_program.hpp"
#include "kernels/cupti/inject/inject.hpp"
#include "kernels/cupti/machine.hpp"
#include "kvroof_version.hpp"
#include "traces/import_profile.hpp"

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

// The trace's whole name: the program may move or remove the folder that a relative one counts from.
fs::path whole_name(const fs::path& out) {
  std::error_code error;
  fs::path path = fs::absolute(out, error);
  // What follows a link upwards is found by the links alone; else a name stays as it was typed.
  if (!error && std::ranges::find(path, fs::path("..")) != path.end()) path = fs::weakly_canonical(path, error);
  if (error) {
    throw Error(fmt::format("{}: the folder that it counts from cannot be found: {}", out.string(), error.message()));
  }
  path = path.lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // `run.kvt/` names run.kvt
}

// The folder where processes write while the program runs, beside the trace.
class SpoolFolder {
 public:
  explicit SpoolFolder(const fs::path& out) {
    std::string name = out.string() + ".spools-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      throw Error(fmt::format("{}: no folder can be made beside it: {}", out.string(), std::strerror(errno)));
    }
    path_ = name;
    opened_ = open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  }
  // Of an empty folder nothing is lost; spools stay until remove().
  ~SpoolFolder() {
    std::error_code ignored;
    fs::remove(place(), ignored);
    if (opened_ >= 0) close(opened_);
  }
  SpoolFolder(const SpoolFolder&) = delete;
  SpoolFolder& operator=(const SpoolFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] bool in_place() const {
    std::error_code ignored;
    return fs::is_directory(path_, ignored);
  }
  // Where it is now, as someone may have moved a folder that it lies in; empty: it was removed.
  [[nodiscard]] fs::path place() const {
    if (in_place()) return path_;
    std::error_code ignored;
    fs::path now = fs::read_symlink(fmt::format("/proc/self/fd/{}", opened_), ignored);
    return fs::is_directory(now, ignored) ? now : fs::path();
  }
  // The trace is whole.
  void remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

 private:
  fs::path path_;
  int opened_ = -1;
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

// `run-2.kvt` where there is a run.kvt, and so on.
fs::path free_name(const fs::path& out) {
  std::error_code ignored;
  fs::path name = out;
  for (int n = 2; fs::exists(fs::symlink_status(name, ignored)); ++n) {
    name = out.parent_path() / fmt::format("{}-{}{}", out.stem().string(), n, out.extension().string());
  }
  return name;
}

// Why there is no trace, how the program ended, and how to make the trace of what is there. The program's exit code
// stays what it was, unless it was 0.
Error without_trace(const std::string& why, const fs::path& out, const SpoolFolder& spools, int code) {
  const ExitCode own = asked_to_stop() != 0 ? ended_by(asked_to_stop()) : ExitCode::kFailure;
  const std::string text = why.find(out.string()) != std::string::npos ? why : fmt::format("{}: {}", out.string(), why);
  Error error(fmt::format("{}; the program ended with {}", text, code), code != 0 ? static_cast<ExitCode>(code) : own);
  std::error_code ignored;
  const fs::path place = spools.place();
  if (place.empty() || fs::is_empty(place, ignored)) return error;
  const fs::path target = spools.in_place() ? out : place.parent_path() / out.filename();
  const std::string command =
      command_text({"kvroof", "import", "spools", place.string(), "-o", free_name(target).string()});
  return std::move(error).note(fmt::format("what was recorded is kept: `{}`", command));
}

MergedSpools write_trace(const Arguments& arguments, const fs::path& out, const SpoolFolder& spools, int code) {
  if (!spools.in_place()) {
    const char* what = spools.place().empty() ? "the folder of its records was removed" : "its folder was moved";
    throw without_trace(fmt::format("{} while the program ran", what), out, spools, code);
  }
  MergedSpools merged;
  try {
    write_profile(out, kVersion, arguments.command_line, [&](ProfileSink& sink) {
      merged = merge_spools(spools.path(), sink, asked_to_stop());
      sink.note("program", command_text(arguments.program));
      sink.note("exit_code", std::to_string(code));
    });
  } catch (const std::bad_alloc&) {
    throw without_trace("out of memory", out, spools, code);
  } catch (const std::exception& error) {
    throw without_trace(error.what(), out, spools, code);
  }
  return merged;
}

// NVTX calls reach CUPTI when it is named before the first of them; what the user has named has them instead.
void name_for_ranges(const Machine& machine, bool quiet, std::map<std::string, std::string>& set) {
  if (const auto other = machine.variable(kNvtxVariable)) {
    if (quiet || names_cupti(*other)) return;
    say("note: {} is {}, which gets the program's NVTX ranges; unset it to have them in the trace\n",
        kNvtxVariable, *other);
    return;
  }
  const auto cupti = find_library(machine, kCuptiFile);
  if (cupti.empty()) return;
  if (machine.cupti_version(cupti.front()) != kCuptiWithoutNvtx) {
    set[kNvtxVariable] = cupti.front();
  } else if (!quiet) {
    say("note: {} is of CUDA 13.0 before its first update, which ends programs that name a thread: NVTX "
        "ranges are not recorded\n", cupti.front());
  }
}

}  // namespace

int record_program(const Arguments& arguments, const fs::path& name) {
  const fs::path out = whole_name(name);
  const SpoolFolder spools(out);
  const Machine machine = this_machine();
  std::map<std::string, std::string> set = {{"CUDA_INJECTION64_PATH", inject_library().string()},
                                            {kSpoolFolderVariable, spools.path().string()}};
  name_for_ranges(machine, arguments.quiet, set);
  if (const auto other = machine.variable("CUDA_INJECTION64_PATH"); other && !arguments.quiet) {
    say("note: CUDA_INJECTION64_PATH was {}; the program gets kvroof's recorder instead\n", *other);
  }
  const int code = run_to_its_end(arguments.program, environment_with(set));
  const MergedSpools merged = write_trace(arguments, out, spools, code);
  spools.remove();
  if (!arguments.quiet) say("{}\n", merged_text(name, merged));
  return code;
}

}  // namespace kvroof
