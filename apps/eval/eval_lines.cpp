#include "apps/eval/eval_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "apps/cli/text_input.hpp"
#include "apps/eval/eval_text.hpp"

namespace kvroof {
namespace {

// Where the references of an answer stand, as LongBench ("answers") and RULER ("outputs") name them: the first one that
// a line has.
constexpr std::array<const char*, 4> kReferenceKeys = {"reference", "answers", "outputs", "answer"};

// A number as JSON writes it: 0.1 for 0.10.
std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

Line::Line(const EvalRequest& request, std::size_t number, const std::string& text)
    : Line(fmt::format("{}: line {}", request.file.string(), number), number,
           nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false)) {}

Line::Line(std::string where, std::size_t number, nlohmann::json json)
    : where_(std::move(where)), number_(number), json_(std::move(json)) {
  if (!json_.is_object()) throw usage_error(where_ + ": not a JSON object");
}

bool Line::has_references() const {
  return std::ranges::any_of(kReferenceKeys, [this](const char* key) { return has(key); });
}

std::string Line::text(const char* key, bool may_be_empty) const {
  const nlohmann::json& value = at(key);
  if (!value.is_string()) refuse_value(key, "a text");
  if (!may_be_empty && value.get_ref<const std::string&>().empty()) refuse_value(key, "a text that is not empty");
  return value.get<std::string>();
}

std::vector<std::string> Line::texts(const char* key) const {
  const nlohmann::json& value = at(key);
  if (!value.is_array() || value.size() < 2) refuse_value(key, "a list of at least two texts");
  for (const nlohmann::json& item : value) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty()) refuse_value(key, "texts that are not empty");
  }
  return value.get<std::vector<std::string>>();
}

std::vector<std::string> Line::references() const {
  const auto* const key = std::ranges::find_if(kReferenceKeys, [this](const char* name) { return has(name); });
  const char* const name = key == kReferenceKeys.end() ? kReferenceKeys.front() : *key;
  if (at(name).is_number()) return {text_of(at(name))};
  if (!at(name).is_array()) return {text(name, false)};
  for (const nlohmann::json& item : at(name)) {
    if (item.is_number()) continue;
    if (!item.is_string() || item.get_ref<const std::string&>().empty()) refuse_value(name, "texts that are not empty");
  }
  if (at(name).empty()) refuse_value(name, "a text or a list of at least one");
  std::vector<std::string> all;
  for (const nlohmann::json& item : at(name)) all.push_back(text_of(item));
  return all;
}

std::size_t Line::index(const char* key, std::size_t count) const {
  const nlohmann::json& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= count) {
    refuse_value(key, fmt::format("a number from 0 to {}, the index of a choice", count - 1));
  }
  return value.get<std::size_t>();
}

std::vector<Line> Line::turns() const {
  const nlohmann::json& value = at(kTurnsKey);
  if (!value.is_array() || value.empty()) refuse_value(kTurnsKey, "a list of at least one object");
  std::vector<Line> turns;
  for (const nlohmann::json& turn : value) {
    turns.push_back(Line(fmt::format("{}, turn {}", where_, turns.size() + 1), number_, turn));
  }
  return turns;
}

void Line::check_context(const ModelConfig& config, std::size_t tokens) const {
  if (tokens <= config.shape.max_positions) return;
  throw usage_error(fmt::format("{} has {} tokens, but the context of the model is {}", where_, tokens,
                                config.shape.max_positions));
}

void Line::refuse(const std::string& problem, const std::string& note) const {
  Error error = usage_error(fmt::format("{}: {}", where_, problem));
  throw note.empty() ? std::move(error) : std::move(error).note(note);
}

const nlohmann::json& Line::at(const char* key) const {
  if (!json_.contains(key)) throw usage_error(fmt::format("{}: key \"{}\" is missing", where_, key));
  return json_[key];
}

void Line::refuse_value(const char* key, const std::string& expected) const {
  const std::string found = json_[key].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  throw usage_error(fmt::format("{}: \"{}\" must be {}, found {}", where_, key, expected, found.substr(0, 60)));
}

std::vector<Line> read_lines(const EvalRequest& request) {
  const std::string text = text_input("jsonl", request.file.string(), kMostEvalBytes);
  std::vector<Line> lines;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.emplace_back(request, number, line);
    begin = end + 1;
  }
  if (lines.empty()) throw usage_error(fmt::format("--jsonl {}: the file is empty", request.file.string()));
  return lines;
}

}  // namespace kvroof
