// `kvroof calibrate` as a user meets it.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

TEST_CASE("calibrate writes a device file of measured facts, none above 100 %, and prints them as JSON when asked") {
  const TemporaryFolder folder;
  const std::string file = folder.file("cpu.yaml");
  const Ran ran = run_program("calibrate --device cpu --format json -o " + file);
  if (ran.code == 1 && ran.err.find("which cannot be: the machine was busy") != std::string::npos) return;
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  const json printed = json::parse(ran.out);
  CHECK(printed["reads_by_threads"].size() >= 1);
  CHECK(printed["products"].size() == 3);
  CHECK(printed["read_in_turn"]["bytes_per_s"].get<double>() > 0.1e9);
  const Ran shown = run_program("devices show " + file + " --format json");
  INFO(shown.err);
  REQUIRE(shown.code == 0);
  CHECK(printed["facts"] == json::parse(shown.out));
  int shares = 0;
  for (const json& fact : json::parse(shown.out)) {
    CHECK(fact["provenance"] == "measured");
    CHECK(fact["source"].get<std::string>().find("kvroof calibrate on ") == 0);
    if (fact["fact"].get<std::string>().find("_fraction") == std::string::npos) continue;
    ++shares;
    CHECK(fact["value"].get<double>() > 0.02);
    CHECK(fact["value"].get<double>() <= 1);
  }
  CHECK(shares == 3);
}

TEST_CASE("calibrate of an unknown device says which it can measure") {
  const Ran ran = run_program("calibrate --device h200");
  CHECK(ran.code == 2);
  CHECK(ran.err.find("error: --device h200: calibrate measures the cpu") == 0);
}
