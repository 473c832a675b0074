// Runs the built program as a user would and returns what it printed and how it ended.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

namespace kvroof::test {

struct Ran {
  int code = -1;  // exit code; 128 + signal when killed
  std::string out;
  std::string err;
};

// A folder of its own for one test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvroof-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether there is a file in the folder, or below, that was not given its name.
inline bool has_part_file(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder)) return false;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".part") return true;
  }
  return false;
}

// `words` are passed to a shell: quote what needs quoting. The program as built stays on the CPU unless the words say
// otherwise, so that its answers are the same on a machine with a GPU.
inline Ran run_program(const std::string& words,
                       const std::string& program = "KVROOF_BACKEND=fast " + std::string(KVROOF_PROGRAM)) {
  const TemporaryFolder folder;
  const std::string command = program + " " + words + " >" + folder.file("out") + " 2>" +
                              folder.file("err") + " </dev/null";
  const int status = std::system(command.c_str());
  Ran ran;
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.out = slurp(folder.path() / "out");
  ran.err = slurp(folder.path() / "err");
  return ran;
}

}  // namespace kvroof::test
