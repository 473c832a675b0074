#include "sim/core/names.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "sim/core/error.hpp"
#include "sim/core/files.hpp"

namespace kvroof {
namespace {

// Endings that name a tuning or a storage of the same shape, in plain letters; a longer one comes before its own end.
constexpr std::string_view kEndings[] = {
    "4bit",     "8bit", "bnb",  "unsloth",
    "instruct", "chat", "hf",   "it",    "base",  "fp8",   "bf16", "nvfp4",     "mxfp4", "fp4",  "awq",  "gptq",
    "v01",      "v02",  "v03",  "v15",   "fp16",  "int4",  "int8", "f16",       "w4a16", "w8a8", "w8a16", "kv",
    "dynamic",  "gguf", "pt",   "q40",   "q80",   "q4km",  "q6k",  "q4kmedium", "q5km",  "mostly", "quantized",
    "2407",     "2409", "2410", "2411",  "2412",  "2501",  "2503", "2506",      "2507"};
constexpr std::array<std::string_view, 6> kVendors = {"nvidia", "geforce", "amd", "instinct", "intel", "meta"};

std::string without_ending(std::string text) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view ending : kEndings) {
      if (text.size() <= ending.size() || !text.ends_with(ending)) continue;
      text.resize(text.size() - ending.size());
      again = true;
    }
  }
  return text;
}

std::string without_vendor(std::string text) {
  for (const std::string_view vendor : kVendors) {
    if (text.starts_with(vendor)) text.erase(0, vendor.size());
  }
  return text;
}

// Calls what(key, value) for each entry of a section of the catalog's names.yaml. Throws Error for a file that is none.
template <class What>
void for_each_entry(const std::filesystem::path& catalog, const std::string& section, const What& what) {
  constexpr std::uint64_t kMostBytes = 1U << 20;
  const std::filesystem::path file = catalog / "names.yaml";
  if (!std::filesystem::exists(file)) return;
  try {
    const YAML::Node root = YAML::Load(read_text_file(file, kMostBytes).or_throw(file.string()));
    for (const auto& entry : root[section]) what(entry.first, entry.second);
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("{}: {}", file.string(), e.what()));
  }
}

}  // namespace

std::string plain_letters(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return plain;
}

std::string model_key(std::string_view name) {
  const std::size_t owner = name.rfind('/');  // meta-llama/Llama-3.1-8B
  if (owner != std::string_view::npos) name.remove_prefix(owner + 1);
  return without_ending(without_vendor(plain_letters(name)));
}

std::string device_key(std::string_view name) {
  const std::size_t limit = name.find('@');  // A100-SXM4-80GB@330W
  return without_vendor(plain_letters(name.substr(0, limit)));
}

std::string device_words(std::string_view name) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : std::string(name.substr(0, name.find('@'))) + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      word = without_vendor(std::move(word));
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    }
  }
  std::sort(words.begin(), words.end());
  std::string key;
  for (const std::string& w : words) key += " " + w;
  return key;
}

std::vector<OtherName> other_names(const std::filesystem::path& catalog, const std::string& section) {
  std::vector<OtherName> found;
  for_each_entry(catalog, section, [&](const YAML::Node& name, const YAML::Node& others) {
    for (const auto& other : others) found.push_back({other.as<std::string>(), name.as<std::string>()});
  });
  return found;
}

std::optional<std::uint32_t> own_max_positions(const std::filesystem::path& catalog, std::string_view typed) {
  const std::string letters = plain_letters(typed), key = model_key(typed);
  std::optional<std::uint32_t> positions;
  for_each_entry(catalog, "max_positions", [&](const YAML::Node& name, const YAML::Node& value) {
    const auto checkpoint = name.as<std::string>();
    const bool same = letters.starts_with(plain_letters(checkpoint)) && key == model_key(checkpoint);
    if (same) positions = value.as<std::uint32_t>();
  });
  return positions;
}

std::vector<std::string> yaml_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  if (error) throw Error(fmt::format("{}: {}", folder.string(), error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> name_in_catalog(std::string_view typed, const std::vector<std::string>& names,
                                           const std::vector<OtherName>& others, NameKey key_of) {
  const std::string key = key_of(typed);
  for (const OtherName& other : others) {
    if (key_of(other.other) == key) return other.name;
  }
  std::set<std::string> meant;
  for (const std::string& name : names) {
    if (key_of(name) == key) meant.insert(name);
  }
  return meant.size() == 1 ? std::optional(*meant.begin()) : std::nullopt;
}

void check_catalog_name(const std::string& name, const std::filesystem::path& file) {
  if (name == file.stem().string()) return;
  throw usage_error(fmt::format("{}: its name is '{}', expected '{}': a file of the catalog is called as what it holds",
                                file.string(), name, file.stem().string()));
}

}  // namespace kvroof
