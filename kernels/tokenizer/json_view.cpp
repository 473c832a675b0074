#include "kernels/tokenizer/json_view.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {

using Json = nlohmann::json;

struct JsonView::Node {
  std::shared_ptr<const Json> document;
  const Json* value;
  std::shared_ptr<const Node> parent;  // null for the document itself
  std::string name;                    // ".key" or "[index]" below the parent

  static JsonView child(const JsonView& parent, const Json& value, std::string name) {
    return JsonView(
        std::make_shared<const Node>(Node{parent.node_->document, &value, parent.node_, std::move(name)}));
  }
};

JsonView JsonView::parse(std::string_view text) {
  std::shared_ptr<const Json> document;
  try {
    document = std::make_shared<const Json>(Json::parse(text.begin(), text.end()));
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
  return JsonView(std::make_shared<const Node>(Node{std::move(document), value, nullptr, ""}));
}

std::string JsonView::where() const {
  std::vector<const Node*> path;
  for (const Node* n = node_.get(); n != nullptr; n = n->parent.get()) path.push_back(n);
  std::string text;
  std::for_each(path.rbegin(), path.rend(), [&](const Node* n) { text += n->name; });
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
  return Node::child(*this, found == json.end() ? null : *found, "." + std::string(key));
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
  for (const Json& item : *node_->value) f(Node::child(*this, item, fmt::format("[{}]", i++)));
}

void JsonView::for_each_member(const std::function<void(const std::string&, const JsonView&)>& f) const {
  if (!node_->value->is_object()) throw damaged("expected an object");
  for (const auto& [key, value] : node_->value->items()) f(key, Node::child(*this, value, "[" + in_quotes(key) + "]"));
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
