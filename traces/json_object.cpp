#include "traces/json_object.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"
#include "traces/checksum.hpp"

namespace kvroof {
namespace {

constexpr int kDeepestObject = 16;
using nlohmann::json;

struct Document {
  json root;
  std::string problem;
};

// Watches a parse for what the document tree would hide: duplicate keys and deep nesting.
class Watch {
 public:
  // Returning false drops the value; nothing is remembered after the first problem, so hostile input costs no memory.
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (!problem_.empty()) return false;
    switch (event) {
      case json::parse_event_t::array_start:
      case json::parse_event_t::object_start:
        if (depth >= kDeepestObject) problem_ = fmt::format("nested deeper than {}", kDeepestObject);
        if (event == json::parse_event_t::object_start) keys_.emplace_back();
        break;
      case json::parse_event_t::object_end: keys_.pop_back(); break;
      case json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get<std::string>()).second) {
          problem_ = fmt::format("the key '{}' occurs twice", parsed.get<std::string>());
        }
        break;
      default: break;
    }
    return problem_.empty();
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string problem_;
};

}  // namespace

struct JsonObject::Node {
  std::shared_ptr<Document> document;
  const json* value;
  std::string path;  // "layers[3]."

  // The field, or null after reporting why it is not there.
  [[nodiscard]] const json* find(std::string_view field) const {
    if (!document->problem.empty()) return nullptr;
    const auto it = value->find(std::string(field));
    if (it == value->end()) {
      document->problem = fmt::format("{}{} is missing", path, field);
      return nullptr;
    }
    return &*it;
  }
  void expect(std::string_view field, std::string_view expected, const json& found) const {
    std::string text =
        found.is_structured() ? found.type_name() : found.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    document->problem = fmt::format("{}{} is {}, expected {}", path, field, text, expected);
  }
};

Result<JsonObject> JsonObject::parse(std::string_view text) {
  if (has_zero_byte(text)) return failure("not valid JSON: it holds a zero byte");
  auto document = std::make_shared<Document>();
  Watch watch;
  document->root = json::parse(text, std::ref(watch), false);
  if (!watch.problem().empty()) return Failure{watch.problem()};
  if (document->root.is_discarded()) return failure("not valid JSON");
  if (!document->root.is_object()) return failure("not a JSON object");
  JsonObject result;
  result.node_ = std::make_shared<Node>(Node{document, &document->root, ""});
  return result;
}

bool JsonObject::has(std::string_view field) const {
  return node_->value != nullptr && node_->value->contains(field);
}

std::uint64_t JsonObject::integer(std::string_view field, std::uint64_t low, std::uint64_t high) const {
  const json* value = node_->find(field);
  if (value == nullptr) return low;
  if (value->is_number_unsigned()) {
    const auto n = value->get<std::uint64_t>();
    if (n >= low && n <= high) return n;
  }
  node_->expect(field, fmt::format("a whole number from {} to {}", low, high), *value);
  return low;
}

double JsonObject::number(std::string_view field, double low, double high) const {
  const json* value = node_->find(field);
  if (value == nullptr) return low;
  if (value->is_number()) {
    const auto x = value->get<double>();
    if (x >= low && x <= high) return x;
  }
  node_->expect(field, fmt::format("a number from {} to {}", low, high), *value);
  return low;
}

std::string JsonObject::string(std::string_view field) const {
  const json* value = node_->find(field);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  node_->expect(field, "a string", *value);
  return {};
}

std::string JsonObject::word(std::string_view field, const std::vector<std::string>& known) const {
  std::string text = string(field);
  if (!problem().empty() || std::find(known.begin(), known.end(), text) != known.end()) return text;
  node_->expect(field, fmt::format("one of: {}", join(known)), text);
  return {};
}

std::uint64_t JsonObject::hex(std::string_view field) const {
  const std::string text = string(field);
  const auto value = from_hex(text);
  if (!value && problem().empty()) node_->expect(field, "16 hexadecimal digits", text);
  return value.value_or(0);
}

std::vector<float> JsonObject::floats(std::string_view field, std::size_t most) const {
  const json* value = node_->find(field);
  if (value == nullptr) return {};
  constexpr double kLimit = std::numeric_limits<float>::max();
  const auto fits = [](const json& x) { return x.is_number() && std::abs(x.get<double>()) <= kLimit; };
  if (!value->is_array() || value->size() > most || !std::all_of(value->begin(), value->end(), fits)) {
    node_->expect(field, fmt::format("an array of at most {} numbers", most), *value);
    return {};
  }
  return value->get<std::vector<float>>();
}

JsonObject JsonObject::object(std::string_view field) const {
  const json* value = node_->find(field);
  if (value != nullptr && !value->is_object()) node_->expect(field, "an object", *value);
  JsonObject result;
  result.node_ = std::make_shared<Node>(Node{node_->document, value, fmt::format("{}{}.", node_->path, field)});
  return result;
}

std::vector<JsonObject> JsonObject::objects(std::string_view field, std::size_t least, std::size_t most) const {
  const json* value = node_->find(field);
  if (value == nullptr) return {};
  const auto is_object = [](const json& x) { return x.is_object(); };
  if (!value->is_array() || value->size() < least || value->size() > most ||
      !std::all_of(value->begin(), value->end(), is_object)) {
    node_->expect(field, fmt::format("an array of {} to {} objects", least, most), *value);
    return {};
  }
  std::vector<JsonObject> result(value->size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Node node{node_->document, &(*value)[i], fmt::format("{}{}[{}].", node_->path, field, i)};
    result[i].node_ = std::make_shared<Node>(node);
  }
  return result;
}

std::string JsonObject::object_text(std::string_view field) const {
  const json* value = node_->find(field);
  if (value == nullptr || value->is_null()) return {};
  if (value->is_object()) return value->dump();
  node_->expect(field, "an object or null", *value);
  return {};
}

void JsonObject::refuse(std::string_view field, std::string_view why) const {
  if (problem().empty()) node_->document->problem = fmt::format("{}{} {}", node_->path, field, why);
}

const std::string& JsonObject::problem() const { return node_->document->problem; }

}  // namespace kvroof
