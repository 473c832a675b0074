#include "apps/cli/data_folder.hpp"

#include <cstdlib>
#include <system_error>

#include "sim/core/error.hpp"

namespace kvroof {

std::filesystem::path data_folder() {
  namespace fs = std::filesystem;
  if (const char* home = std::getenv("KVROOF_HOME")) return home;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    if (fs::is_directory(at / "catalog" / "devices", ignored)) return at;
    if (fs::is_directory(at / "share" / "kvroof" / "catalog", ignored)) return at / "share" / "kvroof";
  }
  const fs::path here = fs::current_path(ignored);
  if (fs::is_directory(here / "catalog" / "devices", ignored)) return here;
  throw Error("the folder catalog/ was not found beside or above the program, nor in the current folder")
      .note("set KVROOF_HOME to the folder that holds it");
}

}  // namespace kvroof
