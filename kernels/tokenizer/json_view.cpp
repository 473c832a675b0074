#include "kernels/tokenizer/json_view.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/tokenizer/unicode.hpp"
#include "sim/core/text.hpp"

namespace kvroof {

using Json = nlohmann::json;

// The root holds the document; every other node is a value below its parent.
struct JsonView::Node {
  enum class Step : std::uint8_t { kRoot, kKey, kMember, kIndex };  // root; .key; ["key"]; [index]

  std::unique_ptr<const Json> document;
  const Json* value;
  std::shared_ptr<const Node> parent;
  Step step;
  std::string key;
  std::size_t index;

  static JsonView child(const JsonView& parent, const Json& value, Step step, std::string_view key, std::size_t index) {
    return JsonView(std::make_shared<const Node>(nullptr, &value, parent.node_, step, std::string(key), index));
  }
  Node(std::unique_ptr<const Json> d, const Json* v, std::shared_ptr<const Node> p, Step s, std::string k,
       std::size_t i)
      : document(std::move(d)), value(v), parent(std::move(p)), step(s), key(std::move(k)), index(i) {}

  [[nodiscard]] std::string name() const {
    switch (step) {
      case Step::kKey:
        return "." + key;
      case Step::kMember:
        return "[" + in_quotes(key) + "]";
      case Step::kIndex:
        return fmt::format("[{}]", index);
      case Step::kRoot:
        break;
    }
    return {};
  }
};

JsonView JsonView::parse(std::string_view text) {
  if (has_zero_byte(text)) throw Error("a zero byte is in the JSON: the file seems to be damaged");
  std::unique_ptr<const Json> document;
  try {
    document = std::make_unique<const Json>(Json::parse(text.begin(), text.end()));
  } catch (const Json::parse_error& e) {
    if (e.byte > text.size()) {
      throw Error(fmt::format("the JSON ends too early, after {} bytes: the file seems to be truncated", text.size()));
    }
    throw Error(fmt::format("byte {} is not valid JSON: the file seems to be damaged", e.byte));
  } catch (const Json::exception&) {
    throw Error("a number in the JSON is out of range: the file seems to be damaged");
  }
  if (!document->is_object()) throw Error("expected a JSON object, as tokenizer.json files are");
  const Json* value = document.get();
  return JsonView(std::make_shared<const Node>(std::move(document), value, nullptr, Node::Step::kRoot, "", 0));
}

std::string JsonView::where() const {
  std::vector<const Node*> path;
  for (const Node* n = node_.get(); n != nullptr; n = n->parent.get()) path.push_back(n);
  std::string text;
  std::for_each(path.rbegin(), path.rend(), [&](const Node* n) { text += n->name(); });
  return text.empty() ? "tokenizer" : text.substr(text.front() == '.' ? 1 : 0);
}

std::size_t JsonView::depth() const {
  std::size_t depth = 0;
  for (const Node* n = node_->parent.get(); n != nullptr; n = n->parent.get()) ++depth;
  return depth;
}

bool JsonView::is_null() const { return node_->value->is_null(); }
bool JsonView::is_text() const { return node_->value->is_string(); }

bool JsonView::has(std::string_view key) const {
  return node_->value->is_object() && node_->value->find(key) != node_->value->end();
}

JsonView JsonView::at(std::string_view key) const {
  static const Json null;
  const Json& json = *node_->value;
  if (!json.is_object()) throw damaged("expected an object");
  const auto found = json.find(key);
  return Node::child(*this, found == json.end() ? null : *found, Node::Step::kKey, key, 0);
}

const std::string& JsonView::text() const {
  if (!is_text()) throw damaged("expected a string");
  return node_->value->get_ref<const std::string&>();
}

std::string JsonView::text_or(std::string_view fallback) const { return is_null() ? std::string(fallback) : text(); }

bool JsonView::flag_or(bool fallback) const {
  if (is_null()) return fallback;
  if (!node_->value->is_boolean()) throw damaged("expected true or false");
  return node_->value->get<bool>();
}

double JsonView::number() const {
  if (!node_->value->is_number()) throw damaged("expected a number");
  return node_->value->get<double>();
}

std::size_t JsonView::count_or(std::size_t fallback) const {
  constexpr std::uint64_t kLargest = 0x7FFFFFFF;
  if (is_null()) return fallback;
  if (!node_->value->is_number_unsigned() || node_->value->get<std::uint64_t>() > kLargest) {
    throw damaged(fmt::format("expected a whole number from 0 to {}", kLargest));
  }
  return node_->value->get<std::size_t>();
}

char32_t JsonView::character() const {
  const std::string& all = text();
  if (!all.empty()) {
    const Utf8Sequence c = read_utf8(all, 0);
    if (c.length == all.size()) return c.code_point;
  }
  throw damaged(fmt::format("expected one character, found {}", in_quotes(all)));
}

std::size_t JsonView::size() const { return node_->value->size(); }

std::uint32_t JsonView::id() const {
  constexpr std::uint64_t kLargest = 0x7FFFFFFF;
  if (!node_->value->is_number_unsigned() || node_->value->get<std::uint64_t>() > kLargest) {
    throw damaged(fmt::format("expected a token id, a whole number from 0 to {}", kLargest));
  }
  return node_->value->get<std::uint32_t>();
}

std::vector<JsonView> JsonView::items() const {
  std::vector<JsonView> all;
  for_each_item([&](const JsonView& item) { all.push_back(item); });
  return all;
}

void JsonView::for_each_item(const std::function<void(const JsonView&)>& f) const {
  if (!node_->value->is_array()) throw damaged("expected an array");
  std::size_t i = 0;
  for (const Json& item : *node_->value) f(Node::child(*this, item, Node::Step::kIndex, "", i++));
}

void JsonView::for_each_member(const std::function<void(const std::string&, const JsonView&)>& f) const {
  if (!node_->value->is_object()) throw damaged("expected an object");
  for (const auto& [key, value] : node_->value->items()) {
    f(key, Node::child(*this, value, Node::Step::kMember, key, 0));
  }
}

void JsonView::allow_only(std::initializer_list<std::string_view> keys) const {
  for_each_member([&](const std::string& key, const JsonView&) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      throw unsupported(fmt::format("the setting {} is not supported", in_quotes(key)));
    }
  });
}

Error JsonView::damaged(std::string_view reason) const { return Error(fmt::format("{}: {}", where(), reason)); }
Error JsonView::unsupported(std::string_view reason) const {
  return usage_error(fmt::format("{}: {}", where(), reason));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string shown;
  append_valid_utf8(text.substr(0, kLongest), text.size() <= kLongest, shown);
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return "\"" + shown + (text.size() > kLongest ? "…\"" : "\"");
}

}  // namespace kvroof
