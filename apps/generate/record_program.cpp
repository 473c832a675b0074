#include "apps/generate/record_program.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
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

// The folder where processes write while the program runs.
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
  // Of an empty folder nothing is lost; spools stay until remove().
  ~SpoolFolder() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  SpoolFolder(const SpoolFolder&) = delete;
  SpoolFolder& operator=(const SpoolFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  // The trace is whole.
  void remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
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

MergedSpools write_trace(const Arguments& arguments, const fs::path& out, const fs::path& spools, int code) try {
  MergedSpools merged;
  write_profile(out, kVersion, arguments.command_line, [&](ProfileSink& sink) {
    merged = merge_spools(spools, sink, asked_to_stop());
    sink.note("program", command_text(arguments.program));
    sink.note("exit_code", std::to_string(code));
  });
  return merged;
} catch (const Error& error) {
  if (fs::is_empty(spools)) throw;
  throw Error(fmt::format("{}: {}", out.string(), error.what()), error.code())
      .note(fmt::format("what was recorded is kept: `kvroof import spools {} -o {}`", spools.string(), out.string()));
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

int record_program(const Arguments& arguments, const fs::path& out) {
  const SpoolFolder spools(out);
  const Machine machine = this_machine();
  std::map<std::string, std::string> set = {{"CUDA_INJECTION64_PATH", inject_library().string()},
                                            {kSpoolFolderVariable, spools.path().string()}};
  name_for_ranges(machine, arguments.quiet, set);
  if (const auto other = machine.variable("CUDA_INJECTION64_PATH"); other && !arguments.quiet) {
    say("note: CUDA_INJECTION64_PATH was {}; the program gets kvroof's recorder instead\n", *other);
  }
  const int code = run_to_its_end(arguments.program, environment_with(set));
  const MergedSpools merged = write_trace(arguments, out, spools.path(), code);
  spools.remove();
  if (!arguments.quiet) say("{}\n", merged_text(out, merged));
  return code;
}

}  // namespace kvroof
