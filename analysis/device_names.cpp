#include "analysis/device_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "sim/device/device.hpp"
#include "sim/device/driver_names.hpp"

namespace kvroof {
namespace {

using Words = std::vector<std::string>;

// Words of a driver's name that make it another board, or a part of one, than the same name without them. "Max-Q" is
// two words.
constexpr std::array<std::string_view, 9> kOtherBoards = {"mig", "laptop", "mobile", "max", "d",
                                                          "super", "ti", "sff", "3e"};

Words words_of(std::string_view text) {
  Words words(1);
  for (const char c : text) {
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += lower;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool has(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool stands_for(const Words& recorded, const Words& wanted) {
  const auto begins_one = [&](const std::string& word) {
    return std::any_of(recorded.begin(), recorded.end(), [&](const std::string& w) { return w.starts_with(word); });
  };
  const bool other = std::any_of(kOtherBoards.begin(), kOtherBoards.end(),
                                 [&](std::string_view word) { return has(recorded, word) && !has(wanted, word); });
  return !other && has(recorded, wanted.front()) && std::all_of(wanted.begin(), wanted.end(), begins_one);
}

}  // namespace

std::optional<std::string> catalog_name_of(std::string_view recorded, const std::filesystem::path& catalog) {
  const std::map<std::string, std::string> named = catalog_driver_names(catalog);
  if (const auto board = named.find(std::string(recorded)); board != named.end()) return board->second;
  return name_of_words(recorded, catalog_device_names(catalog));
}

std::optional<std::string> name_of_words(std::string_view recorded, const std::vector<std::string>& names) {
  const Words words = words_of(recorded);
  std::optional<std::string> best;
  for (const std::string& name : names) {
    if (stands_for(words, words_of(name)) && (!best || name.size() > best->size())) best = name;
  }
  return best;
}

}  // namespace kvroof
