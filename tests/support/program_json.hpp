// What the program answers as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

namespace kvroof::test {

// `words` are a command and its options; it has to end with `code`.
inline nlohmann::json json_of(const std::string& words, int code = 0, const std::string& program = KVROOF_PROGRAM) {
  const Ran ran = run_program(words + " --format json", program);
  INFO(words << "\n" << ran.err << "\n" << ran.out);
  REQUIRE(ran.code == code);
  return nlohmann::json::parse(ran.out);
}

inline nlohmann::json simulate(const std::string& words, int code = 0) { return json_of("simulate " + words, code); }

// Of an estimate with its interval.
inline double value(const nlohmann::json& estimate) { return estimate["value"].get<double>(); }

inline bool has_note(const nlohmann::json& answer, const std::string& words) {
  for (const nlohmann::json& note : answer["notes"]) {
    if (note.get<std::string>().find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace kvroof::test
