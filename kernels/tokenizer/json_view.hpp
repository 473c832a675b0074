// A view of one value of a tokenizer.json, read strictly; keeps the JSON library out of headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace kvroof {

// Every accessor throws Error("where: why") when the value is not of the wanted kind. A view keeps the document alive.
class JsonView {
 public:
  // Throws Error when the text is no JSON object.
  static JsonView parse(std::string_view text);

  // The path of the value in the document, for messages: "pre_tokenizer.pretokenizers[1]".
  [[nodiscard]] std::string where() const;

  // How many values enclose this one.
  [[nodiscard]] std::size_t depth() const;

  // A key that is absent reads as null, as in the reference library.
  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_text() const;
  [[nodiscard]] bool has(std::string_view key) const;  // false when this is no object
  [[nodiscard]] JsonView at(std::string_view key) const;

  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] std::string text_or(std::string_view fallback) const;  // for null
  [[nodiscard]] bool flag_or(bool fallback) const;                     // for null
  [[nodiscard]] std::uint32_t id() const;                              // a token id, 0 … 2^31 − 1
  [[nodiscard]] double number() const;
  [[nodiscard]] std::size_t count_or(std::size_t fallback) const;  // for null; 0 … 2^31 − 1
  [[nodiscard]] char32_t character() const;                        // a string of one character
  [[nodiscard]] std::size_t size() const;                          // of an array or object
  [[nodiscard]] std::vector<JsonView> items() const;

  // Calls f for each element of an array or each member of an object (sorted by key).
  void for_each_item(const std::function<void(const JsonView&)>& f) const;
  void for_each_member(const std::function<void(const std::string& key, const JsonView&)>& f) const;

  // Refuses keys that are not in the list, by name.
  void allow_only(std::initializer_list<std::string_view> keys) const;

  // Error("where: reason"): damaged for what can never be right, unsupported (usage) for what is not built.
  [[nodiscard]] Error damaged(std::string_view reason) const;
  [[nodiscard]] Error unsupported(std::string_view reason) const;

 private:
  struct Node;
  explicit JsonView(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

// Foreign text for a message: in quotes, without control characters, cut after 60 bytes.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace kvroof
