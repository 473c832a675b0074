// kvroof doctor as a user runs it; what it finds on other machines is tested with made ones (tests/unit/cupti).
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;

TEST_CASE("doctor exits 0 with a device and 77 without, in every format, and asks for something only where it lacks") {
  const Ran ran = run_program("doctor --format json");
  const auto rows = nlohmann::json::parse(ran.out);
  REQUIRE(rows.size() >= 9);
  bool device = false;
  for (const auto& row : rows) {
    const std::string item = row["item"], state = row["state"];
    device = device || item == "device 0";
    INFO(item);
    CHECK((state == "ok" || state == "limited" || state == "missing"));
    CHECK((state == "ok") == row["remedy"].is_null());
  }
  CHECK(ran.code == (device ? 0 : 77));
  CHECK(ran.err.empty());
  CHECK(run_program("doctor --format csv").out.starts_with("item,state,found,remedy\n"));
  CHECK(run_program("doctor").out.find("driver") != std::string::npos);
}
