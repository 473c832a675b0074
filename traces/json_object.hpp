// Reads the fields of JSON objects strictly: by name, type and range. The first problem is kept and named by its path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace kvroof {

// After the first problem every reader returns an empty value, so that a caller reads all fields and looks at problem()
// once.
class JsonObject {
 public:
  // Refuses anything but one object, duplicate keys, and nesting deeper than 16.
  static Result<JsonObject> parse(std::string_view text);

  // Whether the field is there, for those that may be absent.
  [[nodiscard]] bool has(std::string_view field) const;
  [[nodiscard]] std::uint64_t integer(std::string_view field, std::uint64_t low, std::uint64_t high) const;
  [[nodiscard]] double number(std::string_view field, double low, double high) const;
  [[nodiscard]] std::string string(std::string_view field) const;
  // A string that is one of `known`.
  [[nodiscard]] std::string word(std::string_view field, const std::vector<std::string>& known) const;
  // A checksum: 16 hexadecimal digits.
  [[nodiscard]] std::uint64_t hex(std::string_view field) const;
  [[nodiscard]] std::vector<float> floats(std::string_view field, std::size_t most) const;
  [[nodiscard]] JsonObject object(std::string_view field) const;
  [[nodiscard]] std::vector<JsonObject> objects(std::string_view field, std::size_t least, std::size_t most) const;
  // An object as JSON text; null gives the empty string.
  [[nodiscard]] std::string object_text(std::string_view field) const;

  // Adds a problem of the caller's own with a field.
  void refuse(std::string_view field, std::string_view why) const;
  [[nodiscard]] const std::string& problem() const;  // empty: none

 private:
  struct Node;
  std::shared_ptr<const Node> node_;
};

}  // namespace kvroof
