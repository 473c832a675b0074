// kvroof policies, as a user meets it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;

TEST_CASE("kvroof policies lists the policies, and as JSON what each takes and costs") {
  const Ran text = run_program("policies");
  CHECK(text.code == 0);
  const Ran ran = run_program("policies --format json");
  REQUIRE(ran.code == 0);
  const auto all = nlohmann::json::parse(ran.out);
  for (const char* name : {"adakv", "full", "h2o", "keyformer", "observed-attention", "oracle", "pyramidkv", "random",
                           "scissorhands", "snapkv", "streaming", "tova", "window"}) {
    INFO(name);
    CHECK(("\n" + text.out).find("\n" + std::string(name) + " ") != std::string::npos);
    CHECK(std::ranges::count_if(all, [&](const auto& policy) { return policy["policy"] == name; }) == 1);
  }
}

TEST_CASE("kvroof policies show says what a specification needs: bytes of state, rows, unit of storage") {
  const auto shown = nlohmann::json::parse(run_program("policies show h2o:budget=0.5:group=none --format json").out);
  CHECK(shown["policy"] == "h2o:budget=0.5:group=none");
  CHECK(shown["state_bytes_per_slot"] == 4);
  CHECK(shown["attention_rows"] == "softmax weights");
  CHECK(shown["stores_for_each"] == "query head");
  CHECK(shown["parameters"][0]["default"] == "0.5");
  CHECK(run_program("policies show keyformer").out.find("Keyformer: Adnan et al.") != std::string::npos);
}

TEST_CASE("kvroof policies answers typos with the nearest name") {
  const Ran name = run_program("policies show keyfomer");
  CHECK(name.code == 2);
  CHECK(name.err.starts_with("error: unknown policy `keyfomer`; did you mean keyformer?\n"));
  const Ran word = run_program("policies shw h2o");
  CHECK(word.code == 2);
  CHECK(word.err.find("did you mean show?") != std::string::npos);
}
