// Variables of the environment: which there are, and that a misspelt one is told.
#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

namespace fs = std::filesystem;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;

namespace {

const std::string kProgram = KVROOF_PROGRAM;

// What is said on stderr under these variables.
std::string said_under(const std::string& variables) {
  const Ran ran = run_program("models --quiet", variables + " " + kProgram);
  CHECK(ran.code == 0);
  CHECK(ran.out == run_program("models --quiet").out);
  return ran.err;
}

}  // namespace

TEST_CASE("a variable that nothing heeds is told once, with the nearest that there is, and changes nothing") {
  CHECK(said_under("KVROOF_DEVISE=h200") == "note: environment: KVROOF_DEVISE is no variable of kvroof; did you mean "
                                            "KVROOF_DEVICE? (`kvroof help environment`)\n");
  CHECK(said_under("KVROOF_HOMES=/tmp").find("did you mean KVROOF_HOME?") != std::string::npos);
  CHECK(said_under("KVROOF_SOMETHING_ELSE=1") ==
        "note: environment: KVROOF_SOMETHING_ELSE is no variable of kvroof (`kvroof help environment`)\n");
  // Options of any verb, those by themselves, an empty one and those of others are no mistakes.
  CHECK(said_under("KVROOF_DEVICE=h200 KVROOF_MAX_TOKENS=3 KVROOF_NO_GRAPHS=1") == "");
  CHECK(said_under("KVROOF_DEVISE= MY_KVROOF_DEVISE=1") == "");
}

TEST_CASE("help lists every variable that a source names, and no other") {
  const std::string help = run_program("help environment").out;
  const auto names_in = [](const std::string& text, const std::regex& pattern) {
    std::set<std::string> names;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) names.insert((*it)[1]);
    return names;
  };
  std::set<std::string> read;
  for (const char* folder : {"apps", "kernels", "sim", "traces", "analysis", "tests/support", "tests/golden"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(KVROOF_SOURCE_DIR) / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".hpp" && extension != ".cu") continue;
      // Read by its name, or by a constant's that holds it.
      static const std::regex pattern("(?:getenv\\(|Variable = )\"(KVROOF_[A-Z_]+)\"");
      read.merge(names_in(slurp(entry.path()), pattern));
    }
  }
  read.erase("KVROOF_BACKEND");  // an option's, which calibrate asks for by itself
  CHECK(read.size() > 8);
  static const std::regex listed("\n  (KVROOF_[A-Z_]+) ");
  CHECK(names_in(help, listed) == read);
}
