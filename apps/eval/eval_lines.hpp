// The JSON lines of `kvroof eval --jsonl`: objects whose messages name file, line and key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/eval/eval_request.hpp"
#include "sim/model/config_json.hpp"

namespace kvroof {

// Where a line has several questions of one context, as SCBench's files name it: a list of {"input", "answer"}.
inline constexpr const char* kTurnsKey = "multi_turns";

// One object of the file. What it says is thrown as Error (usage) where it is not as expected.
class Line {
 public:
  Line(const EvalRequest& request, std::size_t number, const std::string& text);

  [[nodiscard]] std::size_t number() const { return number_; }
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }
  [[nodiscard]] bool has_references() const;
  [[nodiscard]] std::string text(const char* key, bool may_be_empty) const;
  [[nodiscard]] std::vector<std::string> texts(const char* key) const;  // at least two
  // A text or a number, or a list of at least one; none of them empty.
  [[nodiscard]] std::vector<std::string> references() const;
  [[nodiscard]] std::size_t index(const char* key, std::size_t count) const;
  [[nodiscard]] std::vector<Line> turns() const;  // at least one

  // Throws where so many tokens are more than the context of the model.
  void check_context(const ModelConfig& config, std::size_t tokens) const;
  [[noreturn]] void refuse(const std::string& problem, const std::string& note = {}) const;

 private:
  Line(std::string where, std::size_t number, nlohmann::json json);
  [[nodiscard]] const nlohmann::json& at(const char* key) const;
  [[noreturn]] void refuse_value(const char* key, const std::string& expected) const;

  std::string where_;
  std::size_t number_;
  nlohmann::json json_;
};

// Lines that hold nothing but blanks are skipped; at least one is left.
std::vector<Line> read_lines(const EvalRequest& request);

}  // namespace kvroof
